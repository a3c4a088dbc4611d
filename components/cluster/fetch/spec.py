"""What fetch writes and is told."""

from pydantic import Field

from runtime.spec import Component, Params


class FetchParams(Params):
    """Given by the compiled pipeline."""

    paths: list[str] = Field(description="files and folders that DVC or git tracks, from the repository's root")


COMPONENT = Component(
    name="fetch",
    summary="Fetch the user's files as DVC tracked them at one revision of a repository.",
    image="cpu",
    params=FetchParams,
    outputs=("user_files",),
    has_parameters=False,
    package="components.cluster",
)
