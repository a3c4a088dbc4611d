"""Step train_distributed: parameters, inputs and outputs."""

from typing import Any

from pydantic import Field

from runtime.spec import Component, Params


class TrainDistributedParams(Params):
    """Machines of the job; ``pipelines.kubeflow.compile`` sets them from ``resources.yaml``."""

    values: dict[str, Any] = Field(description="section train_embedding of params.yaml")
    nodes: int = Field(ge=2, description="number of machines")
    image: str = Field(description="container image of every machine")
    runtime: str = Field(description="runtime of Kubeflow's Trainer, such as torch-distributed")
    folder: str = Field(
        pattern=r"^s3://[^/]+/.+", description="folder on S3 for the inputs and the trained model of the job"
    )
    per_node: dict[str, str] = Field(description="Kubernetes resources of each machine")
    node_selector: dict[str, str] = Field(description="labels that a machine must have")
    tolerations: list[dict[str, Any]] = Field(description="Kubernetes tolerations of each machine")
    environment: dict[str, str] = Field(description="environment variables of each machine")
    secrets: dict[str, dict[str, str]] = Field(description="name of the secret: {key: environment variable}")
    timeout: int = Field(ge=1, description="of the job, in seconds")


COMPONENT = Component(
    name="train_distributed",
    summary="Run train_embedding on several machines, with a TrainJob of Kubeflow's Trainer.",
    image="cpu",
    params=TrainDistributedParams,
    inputs=("dataset", "features", "text", "sorter"),
    outputs=("embedding",),
    code_modules=("components.train_embedding.spec", "components.train_embedding.run"),
    has_parameters=False,
    package="components.cluster",
)
