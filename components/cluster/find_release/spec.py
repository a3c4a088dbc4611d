"""Step find_release: parameters and outputs."""

from pydantic import Field

from runtime.spec import Alias, ClusterStep, ModelName, Params


class FindReleaseParams(Params):
    """Parameters that the compiled pipeline passes."""

    model: ModelName = Field(description="name in the registry")
    alias: Alias = Field(description="alias of the version")


COMPONENT = ClusterStep(
    name="find_release",
    summary="Find the version with an alias, and its release.",
    params=FindReleaseParams,
    outputs=(),
    parameter_outputs=("version", "release"),
    side_effects=True,
)
