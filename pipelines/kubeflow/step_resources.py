"""Resources of one step on a cluster: machine, storage, placement, secrets and retries of its pod."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from runtime.spec import StrictModel

CPU = Annotated[str, Field(pattern=r"^(\d+(\.\d+)?|\d+m)$")]
Bytes = Annotated[str, Field(pattern=r"^\d+([KMGTPE]i?)?$")]
MountPath = Annotated[str, Field(pattern=r"^/[^:]+$")]


class GPU(StrictModel):
    """GPUs of a step."""

    type: str = Field(description="Kubernetes resource name, such as nvidia.com/gpu")
    count: int = Field(ge=1)


class Toleration(StrictModel):
    """Toleration of a node taint, as in Kubernetes."""

    key: str
    operator: Literal["Exists", "Equal"]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str | None = None


class NodeRequirement(StrictModel):
    """Requirement on the labels of the node, a match expression of a node affinity."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] = Field(default_factory=list)


class Volume(StrictModel):
    """Persistent volume claim that exists already."""

    claim: str = Field(description="name of the PersistentVolumeClaim")
    mount_path: MountPath
    sub_path: str = ""


class ScratchVolume(StrictModel):
    """Volume that Kubernetes creates with the pod and deletes with it."""

    size: Bytes
    mount_path: MountPath = Field(description="such as /tmp, or /s3/BUCKET, where KFP keeps the artifacts of a pod")
    storage_class: str | None = Field(description="null is the default class of the cluster")


class SecurityContext(StrictModel):
    """User of the container. KFP itself forbids privilege escalation and drops all capabilities."""

    run_as_user: int | None = Field(ge=1, description="user id")
    run_as_group: int | None = Field(ge=1, description="group id")
    run_as_non_root: bool | None


class StepResources(StrictModel):
    """Resources, placement, secrets, retries and parallelism of one step."""

    cpu: CPU = Field(description="requested cores")
    cpu_limit: CPU | None = Field(description="cores; null means no limit")
    memory: Bytes = Field(description="bytes; request and limit")
    gpu: GPU | None
    shared_memory: Bytes | None = Field(description="bytes of /dev/shm, used by data loader workers; part of memory")
    scratch_volume: ScratchVolume | None
    volumes: list[Volume] = Field(description="persistent volume claims; their names are part of the cache key")
    node_selector: dict[str, str] = Field(description="labels that the node must have")
    node_affinity: list[NodeRequirement] = Field(description="requirements that the node must all meet")
    tolerations: list[Toleration]
    labels: dict[str, str] = Field(description="labels of the pod, such as kueue.x-k8s.io/queue-name")
    annotations: dict[str, str] = Field(description="annotations of the pod, such as sidecar.istio.io/inject")
    security_context: SecurityContext | None = Field(description="null leaves the user of the image")
    secrets: list[str] = Field(description="secrets of the file whose keys become environment variables")
    retries: int = Field(ge=0, le=10)
    retry_delay: int = Field(ge=0, description="seconds before the first retry")
    retry_factor: int = Field(ge=1, description="factor between two retry delays; Argo accepts integers only")
    timeout: int = Field(ge=1, description="seconds of one attempt, from the assignment of its pod to a machine")
    queue_timeout: int = Field(
        ge=0, description="seconds that all attempts together may wait for a machine before retries stop"
    )
    shards: int = Field(ge=1, le=100, description="parallel steps, if the stage supports --shard")
    nodes: int = Field(ge=1, le=100, description="machines of one training; more than 1 uses the Kubeflow Trainer")

    @model_validator(mode="before")
    @classmethod
    def _explain_removed_key(cls, values: Any) -> Any:
        if isinstance(values, dict) and "max_retry_delay" in values:
            raise ValueError(
                "max_retry_delay was removed: Argo limits the time of all attempts, not the delay between two; "
                "delete the key and set queue_timeout, in seconds"
            )
        return values

    @property
    def retry_deadline(self) -> int:
        """Seconds from the first pod's creation until Argo starts no retry and stops the running one.

        Argo counts ``maxDuration`` from the *first* attempt (argo-workflows workflow/controller/operator.go:1080-1147).
        So it has room for every attempt at its full timeout, for the delays and for the queue.
        """
        delays: int = sum(self.retry_delay * self.retry_factor**retry for retry in range(self.retries))
        return (self.retries + 1) * self.timeout + delays + self.queue_timeout
