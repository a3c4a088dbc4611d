"""Step fetch: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import Component, Params


class FetchParams(Params):
    """Parameters that the compiled pipeline passes."""

    paths: list[str] = Field(description="files and folders that DVC or git tracks, relative to the repository's root")


COMPONENT = Component(
    name="fetch",
    summary="Fetch the user files of a stage from a repository, as DVC or git tracks them.",
    image="cpu",
    params=FetchParams,
    outputs=("user_files",),
    large_outputs=("user_files",),
    has_parameters=False,
    package="components.cluster",
)
