"""Declaration of the step ``train_job``."""

from typing import Any

from pydantic import Field

from runtime.spec import Component, Params


class TrainJobParams(Params):
    """What the job's machines are and do; written by ``pipelines.kubeflow.compile`` from ``resources.yaml``."""

    values: dict[str, Any] = Field(description="the section train_embedding")
    nodes: int = Field(ge=2, description="machines")
    image: str = Field(description="of every machine")
    runtime: str = Field(description="of Kubeflow's Trainer, such as torch-distributed")
    folder: str = Field(
        pattern=r"^s3://[^/]+/.+", description="where the machines find their inputs and leave the model"
    )
    per_node: dict[str, str] = Field(description="resources of Kubernetes")
    node_selector: dict[str, str]
    tolerations: list[dict[str, Any]]
    environment: dict[str, str]
    secrets: dict[str, dict[str, str]] = Field(description="name of the secret: {key: environment variable}")
    timeout: int = Field(ge=1, description="seconds")


COMPONENT = Component(
    name="train_distributed",
    summary="Train on several machines, by a TrainJob of Kubeflow's Trainer.",
    image="cpu",
    params=TrainJobParams,
    inputs=("dataset", "features", "text", "sorter"),
    outputs=("embedding",),
    code_paths=("components/train_embedding", "bifocal"),
    has_parameters=False,
    package="components.cluster",
)
