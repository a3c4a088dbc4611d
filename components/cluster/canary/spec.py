"""Step canary: parameters, inputs and outputs."""

from typing import Any

from pydantic import Field

from runtime.spec import Alias, ClusterStep, Params

VERDICT = "verdict"
"""Output: ``promote``, ``withdraw``, or ``wait`` if the time was too short for a decision."""


class CanaryParams(Params):
    """Parameters that the compiled pipeline passes."""

    rule: dict[str, Any] = Field(description="canary.yaml")
    services: list[str] = Field(description="addresses of replicas, or dns+http://NAME:PORT for all pods of a name")
    folder: str = Field(description="s3:// address of the counts, which outlive replicas and this step")
    hours: float = Field(ge=0, description="longest time to wait for a decision")
    champion: Alias = Field(description="alias")
    lock_timeout: float = Field(ge=0, description="seconds to wait for another promotion")


COMPONENT = ClusterStep(
    name="canary",
    summary="Wait for the searches of clients, and decide whether the registered version may be promoted.",
    params=CanaryParams,
    inputs=("registration",),
    outputs=("canary",),
    parameter_outputs=(VERDICT,),
    metrics=("canary/decision.json",),
    side_effects=True,
)
