"""What notify is told."""

from components.spec import Component, Params

COMPONENT = Component(
    name="notify",
    summary="Tell of a failed run, by a web hook.",
    image="cpu",
    params=Params,
    outputs=(),
    section=False,
)
