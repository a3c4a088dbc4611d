"""Settings of the pods of a training on several machines."""

from typing import Any

from pydantic import Field

from runtime.spec import StrictModel

SETTINGS = "BIFOCAL_TRAIN_NODES"
"""Environment variable with the ``NodeSettings`` as JSON."""


class NodeSettings(StrictModel):
    """Pods of the job. No result depends on them: they are a variable of the step, which is in no cache key."""

    runtime: str = Field(description="runtime of Kubeflow's Trainer, such as torch-distributed")
    folder: str = Field(
        pattern=r"^s3://[^/]+/.+", description="folder on S3 for the inputs, checkpoints and models of the jobs"
    )
    resources: dict[str, str] = Field(description="Kubernetes resources of each machine")
    processes: int = Field(ge=1, description="processes on each machine, one per GPU")
    environment: list[str] = Field(description="variables of this step that each machine gets")
    secrets: dict[str, dict[str, str]] = Field(description="name of the secret: {key: environment variable}")
    shared_memory: str | None = Field(description="bytes of /dev/shm")
    volumes: list[dict[str, Any]] = Field(description="Kubernetes volumes, each with its mountPath, and subPath")
    labels: dict[str, str]
    annotations: dict[str, str]
    node_selector: dict[str, str] = Field(description="labels that a machine must have")
    node_affinity: list[dict[str, Any]] = Field(description="match expressions that a machine must all meet")
    tolerations: list[dict[str, Any]]
    image_pull_secrets: list[str]
    security_context: dict[str, Any] | None = Field(description="Kubernetes' PodSecurityContext")
    timeout: int = Field(ge=1, description="of the job, in seconds")
