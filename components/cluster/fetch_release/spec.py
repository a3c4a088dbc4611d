"""Step fetch_release: parameters and outputs."""

from pydantic import Field

from runtime.spec import ClusterStep, ModelName, Params


class FetchReleaseParams(Params):
    """Parameters that the compiled pipeline passes."""

    model: ModelName = Field(description="name in the registry")


COMPONENT = ClusterStep(
    name="fetch_release",
    summary="Fetch the model, the collection, the index and the hubness bank of a release.",
    params=FetchReleaseParams,
    outputs=("embedding", "onnx", "collection", "index", "registration"),
)
