"""``resources.yaml``: what each step gets on a cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, field_validator

from bifocal import registry
from components import catalog
from pipelines.yaml_model import declared
from runtime.spec import StrictModel

FILE = Path(__file__).with_name("resources.yaml")
Quantity = Annotated[str, Field(pattern=r"^\d+(\.\d+)?(m|[KMGTP]i?)?$")]
Duration = Annotated[str, Field(pattern=r"^\d+(\.\d+)?s$")]
Group = Literal["cpu", "gpu", "serve"]


class Gpu(StrictModel):
    """Accelerators of a step."""

    type: str = Field(description="resource name of Kubernetes, such as nvidia.com/gpu")
    count: int = Field(ge=1)


class Toleration(StrictModel):
    """Of a node's taint."""

    key: str
    operator: Literal["Exists", "Equal"]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str | None = None


class StepResources(StrictModel):
    """What one step gets."""

    cpu: Quantity = Field(description="cores")
    memory: Quantity = Field(description="bytes; a limit")
    gpu: Gpu | None
    node_selector: dict[str, str] = Field(description="labels that its node must have")
    tolerations: list[Toleration]
    shared_memory: Quantity | None = Field(description="bytes of /dev/shm, which workers of a data loader share")
    retries: int = Field(ge=0, le=10)
    retry_after: Duration = Field(description="seconds before the first retry")
    retry_factor: float = Field(ge=1, description="by which that grows from retry to retry")
    retry_after_at_most: Duration
    timeout: int = Field(ge=1, description="seconds")
    shards: int = Field(ge=1, le=100, description="steps that do its work at the same time, if it can be divided")
    nodes: int = Field(ge=1, le=100, description="machines that train together, by Kubeflow's Trainer if not one")


class Trainer(StrictModel):
    """Kubeflow's Trainer, for a step with several nodes."""

    runtime: str = Field(description="a ClusterTrainingRuntime or TrainingRuntime of torch")
    folder: str = Field(pattern=r"^s3://[^/]+/.+", description="where its machines find inputs and leave the model")


class Resources(StrictModel):
    """The file."""

    images: dict[str, str] = Field(description="of each dependency group, by tag or better by digest")
    repository: str = Field(description="git, which 'fetch' and 'record' read")
    record: bool
    environment: dict[str, str]
    secrets: dict[str, dict[str, str]] = Field(description="name of the secret: {key: environment variable}")
    trainer: Trainer
    default: StepResources
    steps: dict[str, StepResources]

    @field_validator("steps")
    @classmethod
    def _known(cls, steps: dict[str, StepResources]) -> dict[str, StepResources]:
        known = list(catalog.all_components())
        for name in steps:
            if name not in known:
                raise ValueError(f"{name}: no such step; {registry.suggest(name, known)}")
            if steps[name].shards > 1 and catalog.all_components()[name].merge_step is None:
                raise ValueError(f"{name}: shards is {steps[name].shards}, but nothing puts its parts together")
            if steps[name].nodes > 1 and name != "train_embedding":
                raise ValueError(f"{name}: nodes is {steps[name].nodes}, but only train_embedding runs on several")
        return steps

    def of(self, step: str) -> StepResources:
        """What ``step`` gets."""
        return self.steps.get(step, self.default)


def read(path: Path = FILE, images: Mapping[str, str] | None = None) -> Resources:
    """The file, with ``images`` of other digests, if given.

    Raises:
        ValueError: it is no YAML, or has an unknown key or step, or a quantity that Kubernetes would not understand.
    """

    def check(values: Any) -> Resources:
        if isinstance(values, dict):  # or else pydantic says what it is
            default = values.get("default") or {}
            values["steps"] = {name: {**default, **(step or {})} for name, step in (values.get("steps") or {}).items()}
            values["images"] = {**(values.get("images") or {}), **(images or {})}
        return Resources.model_validate(values)

    return declared(path, check)


def read_images(path: Path) -> dict[str, str]:
    """The digests that ``containers/build.py`` noted.

    Raises:
        ValueError: it is no JSON, or has a group that no image is built of.
    """
    digests = declared(path, TypeAdapter(dict[Group, str]).validate_python)
    return {str(group): digest for group, digest in digests.items()}
