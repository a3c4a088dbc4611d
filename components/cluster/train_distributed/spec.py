"""Step train_distributed: parameters, inputs and outputs."""

from typing import Any

from pydantic import Field

from runtime.spec import ClusterStep, Params


class TrainDistributedParams(Params):
    """Part of the job that its result depends on; ``pipelines.kubeflow.compile`` sets it from ``resources.yaml``."""

    values: dict[str, Any] = Field(description="section train_embedding of params.yaml")
    nodes: int = Field(ge=2, description="number of machines")
    image: str = Field(description="container image of every machine")


COMPONENT = ClusterStep(
    name="train_distributed",
    summary="Run train_embedding on several machines, with a TrainJob of Kubeflow's Trainer.",
    params=TrainDistributedParams,
    inputs=("dataset", "features", "text", "sorter"),
    outputs=("embedding",),
    code_modules=("components.train_embedding.spec", "components.train_embedding.run"),
)
