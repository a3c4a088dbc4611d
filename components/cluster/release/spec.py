"""Step release: inputs and outputs."""

from runtime.spec import Component, Params


class ReleaseParams(Params):
    """No parameters of its own: the registration names the version."""


COMPONENT = Component(
    name="release",
    summary="Add collection, index and hubness bank to the registered version of their model.",
    image="cpu",
    params=ReleaseParams,
    inputs=("embedding", "onnx", "collection", "index", "registration"),
    outputs=("released",),
    has_parameters=False,
    side_effects=True,
    package="components.cluster",
)
