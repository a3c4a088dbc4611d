"""What record reads, writes and is told."""

from typing import Any

from pydantic import Field

from runtime.spec import Component, Params


class RecordParams(Params):
    """Given by the compiled pipeline."""

    values: dict[str, Any] = Field(description="of params.yaml, all of them, as the run had them")


COMPONENT = Component(
    name="push",
    summary="Push what the run made to the DVC remote, and write the change of dvc.lock.",
    image="cpu",
    params=RecordParams,
    inputs=("dataset", "features", "text", "sorter", "embedding", "metrics", "report", "onnx", "registration"),
    outputs=("dvc_lock",),
    has_parameters=False,
    package="components.cluster",
)
