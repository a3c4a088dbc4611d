"""Step notify: parameters, inputs and outputs."""

from runtime.spec import Component, Params

COMPONENT = Component(
    name="notify",
    summary="Report a failed run to a web hook.",
    image="cpu",
    params=Params,
    outputs=(),
    has_parameters=False,
    side_effects=True,
    package="components.cluster",
)
