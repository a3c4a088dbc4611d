"""Step find_release: parameters and outputs."""

from pydantic import Field

from runtime.spec import Component, Params


class FindReleaseParams(Params):
    """Parameters that the compiled pipeline passes."""

    model: str = Field(description="name in the registry")
    alias: str = Field(description="alias of the version")


COMPONENT = Component(
    name="find_release",
    summary="Find the version with an alias, and its release.",
    image="cpu",
    params=FindReleaseParams,
    outputs=(),
    parameter_outputs=("version", "release"),
    has_parameters=False,
    side_effects=True,
    package="components.cluster",
)
