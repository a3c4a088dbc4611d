"""``resources.yaml``: images, secrets, and the resources of each step on a cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, field_validator, model_validator

from bifocal import registry
from components import catalog
from pipelines.yaml_model import load_yaml_model
from runtime.spec import StrictModel

FILE = Path(__file__).with_name("resources.yaml")
Quantity = Annotated[str, Field(pattern=r"^\d+(\.\d+)?(m|[KMGTP]i?)?$")]
ImageName = Literal["cpu", "gpu", "serve"]


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


class StepResources(StrictModel):
    """Resources, retries and parallelism of one step."""

    cpu: Quantity = Field(description="cores")
    memory: Quantity = Field(description="bytes; request and limit")
    gpu: GPU | None
    node_selector: dict[str, str] = Field(description="labels that the node must have")
    tolerations: list[Toleration]
    shared_memory: Quantity | None = Field(description="bytes of /dev/shm, used by data loader workers")
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
        """Seconds from the creation of the first pod until Argo starts no retry and stops the running one.

        Argo compares this limit, the ``maxDuration`` of its backoff, with the start of the *first* attempt
        (argo-workflows ``workflow/controller/operator.go:1080-1092``) and makes it the deadline of retried pods
        (line 1147). So it has room for every attempt at its full timeout, for the delays and for the queue.
        """
        delays = sum(self.retry_delay * self.retry_factor**retry for retry in range(self.retries))
        return (self.retries + 1) * self.timeout + delays + self.queue_timeout


class Trainer(StrictModel):
    """The Kubeflow Trainer, for a step with several nodes."""

    runtime: str = Field(description="name of a ClusterTrainingRuntime or TrainingRuntime for torch")
    folder: str = Field(pattern=r"^s3://[^/]+/.+", description="exchange of inputs and outputs between the machines")


class Resources(StrictModel):
    """The file ``resources.yaml``."""

    images: dict[str, str] = Field(description="image of each dependency group: a tag, or better a digest")
    repository: str = Field(description="git repository that 'fetch' and 'push' clone")
    push: bool = Field(description="whether the last step pushes the outputs to the DVC remote")
    environment: dict[str, str]
    secrets: dict[str, dict[str, str]] = Field(description="name of the secret: {key: environment variable}")
    trainer: Trainer
    default: StepResources
    steps: dict[str, StepResources]

    @field_validator("steps")
    @classmethod
    def _check_steps(cls, steps: dict[str, StepResources]) -> dict[str, StepResources]:
        components = catalog.all_components()
        for name, step in steps.items():
            if name not in components:
                raise ValueError(f"{name}: no such step; {registry.suggest(name, components)}")
            if step.shards > 1 and components[name].merge_step is None:
                raise ValueError(f"{name}: shards is {step.shards}, but the step cannot be sharded; set it to 1")
            if step.nodes > 1 and name != "train_embedding":
                raise ValueError(f"{name}: nodes is {step.nodes}, but only train_embedding runs on several nodes")
        return steps

    def for_step(self, name: str) -> StepResources:
        """Return the resources of the step ``name``."""
        return self.steps.get(name, self.default)


def load(path: Path = FILE, images: Mapping[str, str] | None = None) -> Resources:
    """Read the file.

    Args:
        images: replace images of the file.

    Raises:
        ValueError: the file is not YAML, or has an unknown key, an unknown step or an invalid quantity.
    """

    def validate(values: Any) -> Resources:
        if isinstance(values, dict):  # pydantic reports any other type
            default = values.get("default") or {}
            values["steps"] = {name: {**default, **(step or {})} for name, step in (values.get("steps") or {}).items()}
            values["images"] = {**(values.get("images") or {}), **(images or {})}
        return Resources.model_validate(values)

    return load_yaml_model(path, validate)


def load_images(path: Path) -> dict[str, str]:
    """Read the image digests that ``containers/build.py`` wrote.

    Raises:
        ValueError: the file is not JSON, or has an unknown image name.
    """
    digests = load_yaml_model(path, TypeAdapter(dict[ImageName, str]).validate_python)
    return {str(name): digest for name, digest in digests.items()}
