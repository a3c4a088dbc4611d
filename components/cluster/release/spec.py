"""Step release: inputs and outputs."""

from runtime.spec import ClusterStep, Params


class ReleaseParams(Params):
    """No parameters of its own: the registration names the version."""


COMPONENT = ClusterStep(
    name="release",
    summary="Add collection, index and hubness bank to the registered version of their model.",
    params=ReleaseParams,
    inputs=("embedding", "onnx", "collection", "index", "registration"),
    outputs=("released",),
    side_effects=True,
)
