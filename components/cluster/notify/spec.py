"""Step notify: parameters, inputs and outputs."""

from runtime.spec import ClusterStep, Params

COMPONENT = ClusterStep(
    name="notify",
    summary="Report a failed run to a web hook.",
    params=Params,
    outputs=(),
    side_effects=True,
)
