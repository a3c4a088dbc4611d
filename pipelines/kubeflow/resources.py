"""``resources.yaml``: images and secrets, and the machine, volumes, placement and retries of each
step."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, field_validator, model_validator

from bifocal import registry
from components import catalog
from components.cluster.policies import CanarySettings, Folder, MonitorSettings
from pipelines.policies import load_yaml_model
from runtime import parameters
from runtime.redaction import without_credentials
from runtime.spec import StrictModel

CPU = Annotated[str, Field(pattern=r"^(\d+(\.\d+)?|\d+m)$")]
Bytes = Annotated[str, Field(pattern=r"^\d+([KMGTPE]i?)?$")]
MountPath = Annotated[str, Field(pattern=r"^/[^:]+$")]
FILE = Path(__file__).with_name("resources.yaml")
ImageName = Literal["cpu", "gpu", "serve", "tracking"]


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
    mount_path: MountPath = Field(
        description="such as /tmp, or /s3/BUCKET, where KFP keeps the artifacts of a pod"
    )
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
    shared_memory: Bytes | None = Field(
        description="bytes of /dev/shm, used by data loader workers; part of memory"
    )
    scratch_volume: ScratchVolume | None
    volumes: list[Volume] = Field(
        description="persistent volume claims; their names are part of the cache key"
    )
    node_selector: dict[str, str] = Field(description="labels that the node must have")
    node_affinity: list[NodeRequirement] = Field(
        description="requirements that the node must all meet"
    )
    tolerations: list[Toleration]
    labels: dict[str, str] = Field(
        description="labels of the pod, such as kueue.x-k8s.io/queue-name"
    )
    annotations: dict[str, str] = Field(
        description="annotations of the pod, such as sidecar.istio.io/inject"
    )
    security_context: SecurityContext | None = Field(
        description="null leaves the user of the image"
    )
    secrets: list[str] = Field(
        description="secrets of the file whose keys become environment variables"
    )
    retries: int = Field(ge=0, le=10)
    retry_delay: int = Field(ge=0, description="seconds before the first retry")
    retry_factor: int = Field(
        ge=1, description="factor between two retry delays; Argo accepts integers only"
    )
    timeout: int = Field(
        ge=1, description="seconds of one attempt, from the assignment of its pod to a machine"
    )
    queue_timeout: int = Field(
        ge=0,
        description="seconds that all attempts together may wait for a machine before retries stop",
    )
    shards: int = Field(ge=1, le=100, description="parallel steps, if the stage supports --shard")
    nodes: int = Field(
        ge=1, le=100, description="machines of one training; more than 1 uses the Kubeflow Trainer"
    )

    @property
    def retry_deadline(self) -> int:
        """Seconds from the first pod's creation until Argo starts no retry and stops the running
        one.

        Argo counts ``maxDuration`` from the *first* attempt (argo-workflows
        workflow/controller/operator.go:1080-1147). So it has room for every attempt at its full
        timeout, for the delays and for the queue.
        """
        delays: int = sum(
            self.retry_delay * self.retry_factor**retry for retry in range(self.retries)
        )
        return (self.retries + 1) * self.timeout + delays + self.queue_timeout


class Trainer(StrictModel):
    """The Kubeflow Trainer, for a step with several nodes."""

    runtime: str = Field(
        description="name of a ClusterTrainingRuntime or TrainingRuntime for torch"
    )
    folder: Folder = Field(description="exchange of inputs and outputs between the machines")


class Retention(StrictModel):
    """What the flow ``clean`` does."""

    delete: bool = Field(
        description="delete by pipelines/policies/retention.yaml; otherwise only list"
    )


class Resources(StrictModel):
    """The file ``resources.yaml``."""

    images: dict[str, str] = Field(description="image of each dependency group, with its digest")
    image_pull_secrets: list[str] = Field(
        description="names of secrets with the password of the images' registry"
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        description="null is Kubernetes' own rule: Always for the tag latest, else IfNotPresent"
    )
    service_account: str | None = Field(
        description="service account of the pods; null: pipeline-runner, on a server with "
        "several users default-editor"
    )
    pipeline_root: str | None = Field(
        description="folder of the artifacts, such as s3://bucket/runs; null is the server's"
    )
    repository: str = Field(
        description="git repository that 'fetch' and 'push' clone; empty: this machine reads "
        "user files in place"
    )
    promote: bool = Field(
        description="whether a step after registration promotes the model if it is better"
    )
    push: bool = Field(description="whether the last step pushes the outputs to the DVC remote")
    cache: bool = Field(
        description="whether finished steps come from the cache; false runs every step again"
    )
    environment: dict[str, str]
    secrets: dict[str, dict[str, str]] = Field(
        description="name of the secret: {key: environment variable}"
    )
    checkpoints: Folder | None = Field(
        description="folder on S3 from which a retried training resumes; null: it starts again"
    )
    store: Volume | None = Field(
        description="claim that all steps mount at once (ReadWriteMany), for large artifacts "
        "by reference; null: copies"
    )
    trainer: Trainer
    monitoring: MonitorSettings
    retention: Retention
    canary: CanarySettings | None = Field(
        default=None, description="null: the flow retrain promotes an accepted model at once"
    )
    default: StepResources
    steps: dict[str, StepResources]

    @field_validator("repository")
    @classmethod
    def _check_repository(cls, repository: str) -> str:
        if (shown := without_credentials(repository)) != repository:
            raise ValueError(
                "it has a password or a token before the host, which everybody reads who sees a "
                f"run: write {shown}, and put the token into the secret bifocal-git"
            )
        return repository

    @field_validator("steps")
    @classmethod
    def _check_steps(cls, steps: dict[str, StepResources]) -> dict[str, StepResources]:
        components = catalog.all_components()
        for name, step in steps.items():
            if name not in components:
                raise ValueError(f"{name}: no such step; {registry.suggest(name, components)}")
            if step.shards > 1 and components[name].merge_step is None:
                raise ValueError(
                    f"{name}: shards is {step.shards}, but the step cannot be sharded; set it to 1"
                )
            if step.gpu and step.gpu.count > 1 and not components[name].data_parallel:
                raise ValueError(
                    f"{name}: gpu.count is {step.gpu.count}, but the step uses one GPU; set it to 1"
                )
            if step.nodes > 1 and name != "train_embedding":
                raise ValueError(
                    f"{name}: nodes is {step.nodes}, but only train_embedding runs on several nodes"
                )
        return steps

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        for name, step in {"default": self.default, **self.steps}.items():
            unknown = sorted(set(step.secrets) - set(self.secrets))
            if unknown:
                raise ValueError(
                    f"{name}: 'secrets' has no {unknown[0]!r}; "
                    f"{registry.suggest(unknown[0], self.secrets)}"
                )
        return self

    def for_step(self, name: str) -> StepResources:
        """Return the resources of the step ``name``."""
        return self.steps.get(name, self.default)


def load(
    path: Path = FILE,
    images: Mapping[str, str] | None = None,
    overlays: Sequence[Path] = (),
    project: str | None = None,
) -> Resources:
    """Read the file with the images in ``images``; ``overlays`` are files with different keys for
    this cluster. ``{namespace}`` and ``{project}`` in a text are those of the runs.
    """
    names = {
        "{namespace}": os.environ.get("KFP_NAMESPACE") or "kubeflow",
        "{project}": project or "bifocal",
    }

    def validate(values: Any) -> Resources:
        if isinstance(values, dict):  # pydantic reports any other type
            for overlay in overlays:
                values = load_yaml_model(overlay, partial(_merge, values))
            default = values.get("default") or {}
            values["steps"] = {
                name: {**default, **(step or {})}
                for name, step in (values.get("steps") or {}).items()
            }
            values["images"] = {**(values.get("images") or {}), **(images or {})}
        return Resources.model_validate(_named(values, names))

    return load_yaml_model(path, validate)


def load_images(path: Path) -> dict[str, str]:
    """Read the image digests that ``containers/build.py`` wrote."""
    digests = load_yaml_model(path, TypeAdapter(dict[ImageName, str]).validate_python)
    return {str(name): digest for name, digest in digests.items()}


def _named(values: Any, names: Mapping[str, str]) -> Any:
    if isinstance(values, dict):
        return {key: _named(value, names) for key, value in values.items()}
    if isinstance(values, list):
        return [_named(value, names) for value in values]
    for name, value in names.items():
        values = values.replace(name, value) if isinstance(values, str) else values
    return values


def _merge(values: Mapping[str, Any], overlay: Any) -> dict[str, Any]:
    return parameters.merge(
        values, TypeAdapter(dict[str, Any]).validate_python(overlay or {}), parts=False
    )
