"""Step find_changes: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import Alias, ClusterStep, ModelName, Params

CHANGED = "changed"
"""Output: ``"true"`` if a training is due, else ``"false"``."""


class FindChangesParams(Params):
    """Parameters that the compiled pipeline passes."""

    model: ModelName = Field(description="name in the registry")
    alias: Alias = Field(description="alias of the version that was registered last")
    promote: bool = Field(
        description="whether the flow promotes: then an accepted version without promotion is unfinished"
    )
    least: float = Field(
        ge=0,
        description="smallest share of new and removed images, relative to the last training, that starts a training",
    )


COMPONENT = ClusterStep(
    name="find_changes",
    summary="Compare the dataset with the last training's dataset, and say whether to train again.",
    params=FindChangesParams,
    inputs=("dataset",),
    outputs=(),
    parameter_outputs=(CHANGED,),
    side_effects=True,
)
