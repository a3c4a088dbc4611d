"""Step push: parameters, inputs and outputs."""

from typing import Any

from pydantic import Field

from runtime.spec import ClusterStep, Params


class PushParams(Params):
    """Parameters that the compiled pipeline passes."""

    values: dict[str, Any] = Field(description="all values of params.yaml, as the run used them")


COMPONENT = ClusterStep(
    name="push",
    summary="Push the artifacts of a run to the DVC remote, and a branch with its dvc.lock to the git repository.",
    params=PushParams,
    # Without inputs here: the compiled pipeline passes every artifact that its stages write.
    outputs=("dvc_lock",),
    side_effects=True,
)
