"""Values of a section: their marks, which are references to parts and user paths, and their locations."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel

USER_PATH = "user path"
UserPath = Annotated[Path, USER_PATH]
"""A file or folder that the user provides, outside the artifacts; DVC watches it and Kubeflow fetches it."""


@dataclass(frozen=True)
class FromRegistry:
    """Annotation of a ``ClassRef``: ``Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))]``."""

    package: str  # the package that must have the part
    injected: tuple[str, ...] = ()  # arguments that the stage passes, so that ``params.yaml`` may not set them
    paths: tuple[str, ...] = ()  # arguments that are files or folders of the user, see ``UserPath``


class Leaf(NamedTuple):
    """A value of a section that has a mark: a reference to a part, or a user path."""

    location: tuple[str | int, ...]  # keys and list positions that lead to it
    value: Any  # unchecked
    mark: FromRegistry | str  # the ``FromRegistry`` of a reference, ``USER_PATH`` of a path


def marked_values(model: type[BaseModel], section: Mapping[str, Any]) -> Iterator[Leaf]:
    """Yield the references and user paths in ``section``, also in its lists and nested groups."""
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


def find_mark(annotations: Iterable[Any]) -> FromRegistry | None:
    """Return the mark of a reference to a part, also in a list or an optional value."""
    for annotation in annotations:
        if isinstance(annotation, FromRegistry):
            return annotation
        # The arguments of Annotated[ClassRef, mark], list[...] or X | None.
        mark = find_mark(get_args(annotation))
        if mark is not None:
            return mark
    return None


def user_paths(model: type[BaseModel], section: Mapping[str, Any]) -> dict[tuple[str | int, ...], str]:
    """Return the user paths of ``section`` that are set, each by its location in the section."""
    paths: dict[tuple[str | int, ...], str] = {}
    for location, value, mark in marked_values(model, section):
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
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                paths |= _paths_of_ref(entry, names, (*location, name, index))
    return paths


def replace_values(section: Mapping[str, Any], replacements: Mapping[tuple[str | int, ...], Any]) -> dict[str, Any]:
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
