"""Step release: inputs and outputs."""

from runtime.spec import ClusterStep, Params

COMPONENT = ClusterStep(
    name="release",
    summary="Add collection, index and hubness bank to the registered version of their model.",
    params=Params,
    inputs=("embedding", "onnx", "collection", "index", "registration"),
    outputs=("released",),
    side_effects=True,
)
