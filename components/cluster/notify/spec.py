"""What notify is told."""

from runtime.spec import Component, Params

COMPONENT = Component(
    name="notify",
    summary="Tell of a failed run, by a web hook.",
    image="cpu",
    params=Params,
    outputs=(),
    has_parameters=False,
    package="components.cluster",
)
