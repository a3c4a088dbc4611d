"""Step fetch: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import ClusterStep, Params


class FetchParams(Params):
    """Parameters that the compiled pipeline passes."""

    paths: list[str] = Field(description="files and folders that DVC or git tracks, relative to the repository's root")


COMPONENT = ClusterStep(
    name="fetch",
    summary="Fetch the user files of a stage from a repository, as DVC or git tracks them.",
    params=FetchParams,
    outputs=("user_files",),
    large_outputs=("user_files",),
)
