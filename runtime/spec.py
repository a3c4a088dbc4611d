"""Declaration of a component: its command line, DVC stage and Kubeflow component; imports pydantic, not torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Every spec.py marks its values with these names.
from runtime.marks import FromRegistry as FromRegistry
from runtime.marks import UserPath as UserPath
from runtime.marks import user_paths


class StrictModel(BaseModel):
    """A group of values of a YAML file. Unknown keys and other types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Params(StrictModel):
    """One section of ``params.yaml``: types, units and ranges. Only the file has values."""

    seed: int = Field(ge=0, lt=2**32, description="seed of every random number; set once, at the top of params.yaml")

    @property
    def shardable(self) -> bool:
        """Whether merged shards equal one unsharded run, for a component with ``merge_step``."""
        return True

    def conflicts(self) -> Iterable[str]:
        """Return contradictions between valid parts; unlike a pydantic validator, it may import their classes."""
        return ()

    def local_files(self) -> Iterable[str]:
        """Return reasons why other machines cannot read the outputs; a pipeline of several machines rejects them."""
        return ()


class ClassRef(BaseModel):
    """A part of ``bifocal`` by its Python name, with its arguments: ``{name: TripletLoss, margin: 0.2}``.

    The bare name, ``TripletLoss``, is a reference without arguments.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the part's class."""
        return dict(self.model_extra or {})


@dataclass(frozen=True)
class Plot:
    """A table of an output that DVC draws."""

    path: str  # path of the table, below the outputs
    x: str  # column of the horizontal axis
    y: str  # column of the vertical axis
    title: str


@dataclass(frozen=True)
class Component:
    """One stage of the pipeline, or one step that only a cluster runs."""

    name: str  # a verb; the folder of the component, and the section of ``params.yaml``
    summary: str  # one sentence for ``--help``
    image: str  # dependency group of its container, "cpu" or "gpu"
    params: type[Params]  # model of the section
    outputs: tuple[str, ...]  # names of the artifacts it writes
    inputs: tuple[str, ...] = ()  # names of the artifacts it reads, each a directory at ``artifacts/<name>``
    # outputs that a cluster with a shared store passes on by reference, see ``runtime.shared_store``
    large_outputs: tuple[str, ...] = ()
    # user paths in its section that ``run`` lists, instead of a download of the whole folder
    listed_paths: tuple[str, ...] = ()
    # names of the strings that ``run`` returns beside its metrics: outputs of a step on a cluster
    parameter_outputs: tuple[str, ...] = ()
    # HTML file below the outputs that Kubeflow shows, ``("report/index.html",)``; at most one
    pages: tuple[str, ...] = ()
    # modules that it runs besides its own ``spec`` and ``run``, such as the modules of another process
    code_modules: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()  # small JSON files below the outputs that DVC compares, ``"metrics/summary.json"``
    plots: tuple[Plot, ...] = ()  # tables below the outputs that DVC draws
    image_dirs: tuple[str, ...] = ()  # folders of images below the outputs that DVC shows
    # whether ``params.yaml`` has a section for it; a step that only a cluster runs has none
    has_parameters: bool = True
    package: str = "components"  # package of its folder
    # whether it changes something besides its outputs, such as a registry: never cached, and not a stage of DVC
    side_effects: bool = False
    data_parallel: bool = False  # whether it uses several GPUs, with one process for each under torchrun
    # name of the component that merges the outputs of ``--shard i/n``; None if the work cannot be sharded
    merge_step: str | None = None

    @property
    def module(self) -> str:
        """Dotted name of its package, which has ``spec`` and ``run``."""
        return f"{self.package}.{self.name}"

    @property
    def entry_modules(self) -> tuple[str, ...]:
        """Modules that it starts with; its code is these and all that they import."""
        return (f"{self.module}.spec", f"{self.module}.run", *self.code_modules)

    def user_paths(self, section: Mapping[str, Any]) -> dict[tuple[str | int, ...], str]:
        """Return the user paths of ``section`` that are set, each by its location in the section."""
        return user_paths(self.params, section)


@dataclass(frozen=True, kw_only=True)
class ClusterStep(Component):
    """A step that only a cluster runs; ``params.yaml`` has no section for it."""

    image: str = "cpu"
    has_parameters: bool = False
    package: str = "components.cluster"
