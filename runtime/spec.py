"""What a stage declares. One ``Component`` gives its command line, its DVC stage and its Kubeflow component.

Only the standard library and pydantic are imported here and in every ``spec.py``: a graph compiles without torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field

UserPath = Annotated[Path, "source"]
"""A file or folder of the user's, outside the artifacts; DVC watches it."""


class StrictModel(BaseModel):
    """Values of a YAML file, by their names: what is not declared, or of another type, is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Params(StrictModel):
    """One section of ``params.yaml``: types, units and ranges; the values stand in the file alone."""

    seed: int = Field(ge=0, lt=2**32, description="of every random number; set once, at the top of params.yaml")

    @property
    def shardable(self) -> bool:
        """Whether the parts of a stage that has ``Component.merge`` give what the whole gives."""
        return True


class ClassRef(BaseModel):
    """A part of ``bifocal`` by its Python name, with the arguments that the user sets: ``{name: ..., margin: 0.2}``."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: str

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the part's class."""
        return dict(self.model_extra or {})


@dataclass(frozen=True)
class FromRegistry:
    """``Annotated[ClassRef, FromRegistry("bifocal.losses")]``: the package that must have the part.

    Attributes:
        injected: arguments that the stage gives, so that ``params.yaml`` may not.
    """

    package: str
    injected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plot:
    """A table of an output that DVC draws: ``path`` below the output, columns ``x`` and ``y``."""

    path: str
    x: str
    y: str
    title: str


@dataclass(frozen=True)
class Component:
    """One stage.

    Attributes:
        name: a verb; the folder in ``components/``, and the section of ``params.yaml``.
        summary: one sentence for ``--help``.
        image: dependency group of its container, "cpu" or "gpu".
        params: the section's model.
        inputs: names of the artifacts it reads, each a directory at ``artifacts/<name>``.
        outputs: names of the artifacts it writes.
        code_paths: code that its result depends on besides its own folder, as paths from the repository's root.
        metrics: JSON files below the outputs that DVC compares, ``"metrics/metrics.json"``.
        plots: tables below the outputs that DVC draws.
        image_dirs: folders of images below the outputs that DVC shows.
        has_parameters: whether ``params.yaml`` has a section for it; a step that only a cluster runs has none.
        in_pipeline: whether it belongs to the default pipeline.
        package: package of its folder.
        merge_step: name of the step that puts together what ``--shard i/n`` of this one wrote; None if its work is not
            to be divided.
    """

    name: str
    summary: str
    image: str
    params: type[Params]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    code_paths: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    image_dirs: tuple[str, ...] = ()
    has_parameters: bool = True
    in_pipeline: bool = True
    package: str = "components"
    merge_step: str | None = None

    @property
    def module(self) -> str:
        """Dotted name of its package, which has ``spec`` and ``run``."""
        return f"{self.package}.{self.name}"

    @property
    def all_code_paths(self) -> tuple[str, ...]:
        """All code that its result depends on, as paths from the repository's root."""
        return (self.module.replace(".", "/"), *self.code_paths)

    def user_path_fields(self) -> Iterator[str]:
        """Names of the parameters that are paths of the user's, see ``UserPath``."""
        mark = get_args(UserPath)[1]
        for name, field in self.params.model_fields.items():
            marks = [*field.metadata, *(meta for part in get_args(field.annotation) for meta in get_args(part)[1:])]
            if mark in marks:
                yield name
