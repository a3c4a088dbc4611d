"""Declaration of a component. One ``Component`` gives its command line, its DVC stage and its Kubeflow component.

This module and every ``spec.py`` import only the standard library and pydantic, so a graph compiles without torch.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

USER_PATH = "user path"
UserPath = Annotated[Path, USER_PATH]
"""A file or folder that the user provides, outside the artifacts; DVC watches it and Kubeflow fetches it."""


class StrictModel(BaseModel):
    """A group of values of a YAML file. Unknown keys and other types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Params(StrictModel):
    """One section of ``params.yaml``: types, units and ranges. The values stand in the file alone."""

    seed: int = Field(ge=0, lt=2**32, description="seed of every random number; set once, at the top of params.yaml")

    @property
    def shardable(self) -> bool:
        """Whether merged shards equal one unsharded run, for a component with ``merge_step``."""
        return True

    def conflicts(self) -> Iterable[str]:
        """Return contradictions between parts of the section; called when each part is valid by itself.

        In contrast to a pydantic validator, it may import the parts' classes, and so torch.
        """
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
class FromRegistry:
    """Annotation of a ``ClassRef``: ``Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))]``.

    Attributes:
        package: the package that must have the part.
        injected: arguments that the stage passes, so that ``params.yaml`` may not set them.
        paths: arguments that are files or folders of the user, see ``UserPath``.
    """

    package: str
    injected: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class Leaf(NamedTuple):
    """A value of a section that has a mark: a reference to a part, or a user path.

    Attributes:
        location: keys and list positions that lead to it.
        value: as the file has it, unchecked.
        mark: the ``FromRegistry`` of a reference, ``USER_PATH`` of a path.
    """

    location: tuple[str | int, ...]
    value: Any
    mark: FromRegistry | str


def marked_values(model: type[BaseModel], section: Mapping[str, Any]) -> Iterator[Leaf]:
    """Yield the references and user paths of ``section``, also those in lists and nested groups.

    Args:
        model: the section's model.
        section: its values, as the file has them.
    """
    for name, info in model.model_fields.items():
        if name in section:
            yield from _marked(Annotated[info.annotation, *info.metadata, None], section[name], (name,))


def _marked(annotation: Any, value: Any, location: tuple[str | int, ...]) -> Iterator[Leaf]:
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        marks = [entry for entry in metadata if isinstance(entry, FromRegistry) or entry == USER_PATH]
        if marks and value is not None:
            yield Leaf(location, value, marks[0])
            return
        yield from _marked(inner, value, location)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if isinstance(value, Mapping):
            for leaf in marked_values(annotation, value):
                yield leaf._replace(location=location + leaf.location)
    elif get_origin(annotation) is list:
        for index, entry in enumerate(value if isinstance(value, list) else []):
            yield from _marked(get_args(annotation)[0], entry, (*location, index))
    else:
        for option in get_args(annotation):  # of a union, such as X | None
            yield from _marked(option, value, location)


@dataclass(frozen=True)
class Plot:
    """A table of an output that DVC draws.

    Attributes:
        path: of the table, below the outputs.
        x: column of the horizontal axis.
        y: column of the vertical axis, or a function that returns it for the parameters of the section.
        title: of the plot.
    """

    path: str
    x: str
    y: str | Callable[[Any], str]
    title: str

    def column(self, model: type[Params], values: Mapping[str, Any]) -> str:
        """Return the column of the vertical axis for a section with these values, the seed included."""
        return self.y if isinstance(self.y, str) else self.y(model.model_validate_json(json.dumps(values, default=str)))


@dataclass(frozen=True)
class Component:
    """One stage of the pipeline, or one step that only a cluster runs.

    Attributes:
        name: a verb; the folder of the component, and the section of ``params.yaml``.
        summary: one sentence for ``--help``.
        image: dependency group of its container, "cpu" or "gpu".
        params: model of the section.
        inputs: names of the artifacts it reads, each a directory at ``artifacts/<name>``.
        outputs: names of the artifacts it writes.
        large_outputs: outputs that a cluster with a shared store passes on by reference, see ``runtime.shared_store``.
        parameter_outputs: names of the strings it computes, as outputs of a step on a cluster; ``run`` returns each of
            them by its name, beside its metrics.
        pages: HTML file below the outputs that Kubeflow shows, ``("report/index.html",)``; at most one.
        code_modules: modules that it runs besides its own ``spec`` and ``run``, such as those of another process.
        metrics: small JSON files below the outputs that DVC compares, ``"metrics/summary.json"``.
        plots: tables below the outputs that DVC draws.
        image_dirs: folders of images below the outputs that DVC shows.
        has_parameters: whether ``params.yaml`` has a section for it; a step that only a cluster runs has none.
        in_pipeline: whether it belongs to the default pipeline.
        package: package of its folder.
        side_effects: whether it changes something besides its outputs, such as a registry: it is never cached, and DVC
            has no stage for it.
        data_parallel: whether it uses several GPUs, with one process for each under torchrun.
        merge_step: name of the component that merges the shards that ``--shard i/n`` of this one wrote; None if its
            work cannot be sharded.
        former_keys: keys of the section in an earlier version, each with the key that replaces it.
    """

    name: str
    summary: str
    image: str
    params: type[Params]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    large_outputs: tuple[str, ...] = ()
    parameter_outputs: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    code_modules: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    image_dirs: tuple[str, ...] = ()
    has_parameters: bool = True
    in_pipeline: bool = True
    package: str = "components"
    side_effects: bool = False
    data_parallel: bool = False
    merge_step: str | None = None
    former_keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """Dotted name of its package, which has ``spec`` and ``run``."""
        return f"{self.package}.{self.name}"

    @property
    def entry_modules(self) -> tuple[str, ...]:
        """Modules that it starts with; its code is these and all that they import."""
        return (f"{self.module}.spec", f"{self.module}.run", *self.code_modules)

    def user_paths(self, section: Mapping[str, Any]) -> dict[tuple[str | int, ...], str]:
        """Return the user paths of ``section`` that are set, each by its location in the section.

        >>> class Demo(Params):
        ...     corpus: Annotated[ClassRef, FromRegistry("bifocal.datasets.corpora", paths=("root",))]
        >>> demo = Component(name="demo", summary="", image="cpu", params=Demo, outputs=())
        >>> demo.user_paths({"corpus": {"name": "Flickr8k", "root": "data/flickr8k"}})
        {('corpus', 'root'): 'data/flickr8k'}
        """
        paths: dict[tuple[str | int, ...], str] = {}
        for location, value, mark in marked_values(self.params, section):
            if isinstance(mark, str):
                paths[location] = str(value)
            else:
                paths |= _paths_of_ref(value, mark.paths, location)
        return paths


def _paths_of_ref(
    ref: Any, names: tuple[str, ...], location: tuple[str | int, ...]
) -> dict[tuple[str | int, ...], str]:
    """Return the user paths among the arguments of a reference and of the references nested in it."""
    paths: dict[tuple[str | int, ...], str] = {}
    for name, value in ref.items() if isinstance(ref, Mapping) else ():
        if name in names and isinstance(value, str):
            paths[(*location, name)] = value
        elif isinstance(value, Mapping) and "name" in value:
            paths |= _paths_of_ref(value, names, (*location, name))
    return paths


def replace_values(section: Mapping[str, Any], replacements: Mapping[tuple[str | int, ...], Any]) -> dict[str, Any]:
    """Return ``section`` with the values at some locations replaced.

    >>> replace_values({"corpus": {"name": "Flickr8k", "root": "a"}}, {("corpus", "root"): "b"})
    {'corpus': {'name': 'Flickr8k', 'root': 'b'}}
    """
    copy: dict[str, Any] = _copied(section)
    for location, value in replacements.items():
        container: Any = copy
        for step in location[:-1]:
            container = container[step]
        container[location[-1]] = value
    return copy


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(entry) for key, entry in value.items()}
    return [_copied(entry) for entry in value] if isinstance(value, list) else value
