"""Declaration of a component: parameters, artifacts, DVC stage and Kubeflow component; imports
pydantic, not torch."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

Location = tuple[str | int, ...]
"""Keys and list positions that lead to a value of a section."""
USER_PATH = "user path"
UserPath = Annotated[Path, USER_PATH]
"""A file or folder that the user provides, outside the artifacts; DVC watches it and Kubeflow
fetches it."""


@dataclass(frozen=True)
class FromRegistry:
    """Annotation of a ``ClassRef``: ``Annotated[ClassRef, FromRegistry("bifocal.losses",
    injected=("sorter",))]``."""

    package: str  # the package that must have the part
    injected: tuple[
        str, ...
    ] = ()  # arguments that the stage passes, so that ``params.yaml`` may not set them
    paths: tuple[str, ...] = ()  # arguments that are files or folders of the user, see ``UserPath``


class StrictModel(BaseModel):
    """A group of values of a YAML file. Unknown keys and other types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _model_name(name: str) -> str:
    # A quote would end the text of a filter; MLflow or its database refuse the others, or cut
    # addresses of models.
    if not name.strip() or not name.isprintable() or len(name) > 256 or set(name) & set("\"%'./:?"):
        raise ValueError(
            f'MLflow accepts no model {name!r}: expected up to 256 printed characters, but " '
            "% ' . / : ?"
        )
    return name


def _alias(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,254}", name) or re.fullmatch(r"latest|v\d+", name):
        rule = "a small letter, then small letters, digits, '_' and '-', but not 'latest' or 'v1'"
        raise ValueError(f"MLflow accepts no alias {name!r}: expected {rule}")
    return name


ModelName = Annotated[str, AfterValidator(_model_name)]
"""Name of a registered model that MLflow accepts in every place."""
Alias = Annotated[str, AfterValidator(_alias)]
"""Alias of a version that MLflow accepts."""


class Params(StrictModel):
    """One section of ``params.yaml``: types, units and ranges. Only the file has values."""

    seed: int = Field(
        ge=0,
        lt=2**32,
        description="seed of every random number; set once, at the top of params.yaml",
    )

    @property
    def shardable(self) -> bool:
        """Whether merged shards equal one unsharded run, for a component with ``merge_step``."""
        return True

    @property
    def unused_inputs(self) -> frozenset[str]:
        """Inputs that ``run`` does not read with these values: a stage that only writes such inputs
        does not run."""
        return frozenset()

    def conflicts(self) -> Iterable[str]:
        """Return contradictions between valid parts; unlike a pydantic validator, it may import
        their classes."""
        return ()

    def local_files(self) -> Iterable[str]:
        """Return reasons why other machines cannot read the outputs; a pipeline of several machines
        rejects them."""
        return ()


class ClassRef(BaseModel):
    """A part of ``bifocal`` by its Python name, with its arguments:
    ``{name: TripletLoss, margin: 0.2}``.

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
    inputs: tuple[
        str, ...
    ] = ()  # names of the artifacts it reads, each a directory at ``artifacts/<name>``
    # outputs that a cluster with a shared store passes on by reference, see
    # ``runtime.shared_store``
    large_outputs: tuple[str, ...] = ()
    # user paths in its section that ``run`` lists, instead of a download of the whole folder
    listed_paths: tuple[str, ...] = ()
    # names of the strings that ``run`` returns beside its metrics: outputs of a step on a cluster
    parameter_outputs: tuple[str, ...] = ()
    # HTML file below the outputs that Kubeflow shows, ``("report/index.html",)``; at most one
    pages: tuple[str, ...] = ()
    # modules that it runs besides its own ``spec`` and ``run``, such as the modules of another
    # process
    code_modules: tuple[str, ...] = ()
    metrics: tuple[
        str, ...
    ] = ()  # small JSON files below the outputs that DVC compares, ``"metrics/summary.json"``
    plots: tuple[Plot, ...] = ()  # tables below the outputs that DVC draws
    image_dirs: tuple[str, ...] = ()  # folders of images below the outputs that DVC shows
    # whether ``params.yaml`` has a section for it; a step that only a cluster runs has none
    has_parameters: bool = True
    package: str = "components"  # package of its folder
    # whether it changes something besides its outputs, such as a registry: never cached, and not a
    # stage of DVC
    side_effects: bool = False
    data_parallel: bool = (
        False  # whether it uses several GPUs, with one process for each under torchrun
    )
    # name of the component that merges the outputs of ``--shard i/n``; None if the work cannot be
    # sharded
    merge_step: str | None = None

    @property
    def module(self) -> str:
        """Dotted name of the module with its function ``run``."""
        return f"{self.package}.{self.name}.run"

    @property
    def entry_modules(self) -> tuple[str, ...]:
        """Modules that it starts with; its code is these and all that they import."""
        return (f"{self.package}.{self.name}.spec", self.module, *self.code_modules)

    def typed(self, section: Mapping[str, Any], seed: int) -> Params:
        """Return the validated parameters of a section."""
        return self.params.model_validate_json(json.dumps({"seed": seed, **section}))

    def used_inputs(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the inputs that it reads with valid parameters of the pipeline."""
        unused = self.typed(values[self.name], values["seed"]).unused_inputs
        return tuple(name for name in self.inputs if name not in unused)

    def user_paths(self, section: Mapping[str, Any]) -> dict[Location, str]:
        """Return the user paths of ``section`` that are set, each by its location in the
        section."""
        paths: dict[Location, str] = {}
        for location, value, mark in marked_values(self.params, section):
            paths |= (
                {location: str(value)}
                if isinstance(mark, str)
                else _paths_of_ref(value, mark.paths, location)
            )
        return paths


@dataclass(frozen=True, kw_only=True)
class ClusterStep(Component):
    """A step that only a cluster runs; ``params.yaml`` has no section for it, and a package of
    steps declares it."""

    image: str = "cpu"
    has_parameters: bool = False
    package: str = "components.cluster"

    @property
    def module(self) -> str:
        return f"{self.package}.{self.name}"

    @property
    def entry_modules(self) -> tuple[str, ...]:
        return (self.module, *self.code_modules)


class Leaf(NamedTuple):
    """A value of a section that has a mark: a reference to a part, or a user path."""

    location: Location
    value: Any  # unchecked
    mark: FromRegistry | str  # the ``FromRegistry`` of a reference, ``USER_PATH`` of a path


def marked_values(model: type[BaseModel], section: Mapping[str, Any]) -> Iterator[Leaf]:
    """Yield the references and user paths in ``section``, also in its lists and nested groups."""
    for name, info in model.model_fields.items():
        if name in section:
            yield from _marked(
                Annotated[info.annotation, *info.metadata, None], section[name], (name,)
            )


def _marked(annotation: Any, value: Any, location: Location) -> Iterator[Leaf]:
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        marks = [
            entry for entry in metadata if isinstance(entry, FromRegistry) or entry == USER_PATH
        ]
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


def find_mark(field: FieldInfo) -> FromRegistry | None:
    """Return the mark of a reference to a part, also in a list or an optional value."""
    found = [*field.metadata, *_within(field.annotation)]
    return next((entry for entry in found if isinstance(entry, FromRegistry)), None)


def nested_models(field: FieldInfo) -> list[type[BaseModel]]:
    """Return the models in the type of a field, such as an optional group of values or a list of
    groups."""
    return [
        entry
        for entry in _within(field.annotation)
        if isinstance(entry, type) and issubclass(entry, BaseModel)
    ]


def _within(annotation: Any) -> Iterator[Any]:
    """Yield a type, and the types and marks in it: the arguments of Annotated[ClassRef, mark],
    list[...], X | None."""
    yield annotation
    for argument in get_args(annotation):
        yield from _within(argument)


def _paths_of_ref(ref: Any, names: tuple[str, ...], location: Location) -> dict[Location, str]:
    """Return the user paths among the arguments of a reference and of the references nested in
    it."""
    paths: dict[Location, str] = {}
    for name, value in ref.items() if isinstance(ref, Mapping) else ():
        if name in names and isinstance(value, str):
            paths[(*location, name)] = value
        elif isinstance(value, Mapping) and "name" in value:
            paths |= _paths_of_ref(value, names, (*location, name))
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                paths |= _paths_of_ref(entry, names, (*location, name, index))
    return paths


def replace_values(
    section: Mapping[str, Any], replacements: Mapping[Location, Any]
) -> dict[str, Any]:
    """Return ``section`` with the values at some locations replaced."""
    copy: dict[str, Any] = deepcopy(dict(section))
    for location, value in replacements.items():
        container: Any = copy
        for step in location[:-1]:
            container = container[step]
        container[location[-1]] = value
    return copy


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested values with dotted names; the entries of a list of groups by their position."""
    if isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {prefix.rstrip("."): value}
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        flat |= flatten(entry, f"{prefix}{key}.")
    return flat
