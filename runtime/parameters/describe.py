"""Description of a stage's parameters, for ``--help`` and the tables of the READMEs."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from bifocal import registry
from runtime.marks import FromRegistry, find_mark
from runtime.parameters.docstrings import argument_descriptions, summary
from runtime.parameters.type_text import type_text
from runtime.spec import ClassRef


@dataclass(frozen=True)
class Parameter:
    """A value of ``params.yaml``, or a group of values."""

    name: str  # key, or position in a list
    value: str  # one line of YAML; empty if it is not set
    type: str  # with the range, such as "integer ≥ 1"; empty for arguments of parts
    description: str  # one sentence or phrase
    package: str | None = None  # package of the parts that the parameter may name, if it names parts
    part: str | None = None  # name of the chosen part, if it names one
    members: tuple["Parameter", ...] = ()  # group members, list entries, or arguments of a part


def describe(model: type[BaseModel], section: Mapping[str, Any]) -> Iterator[Parameter]:
    """Yield the parameters of a section in the order of their declaration."""
    schema = model.model_json_schema()
    for name, field in model.model_fields.items():
        value, present = section.get(name), name in section
        mark = find_mark([*field.metadata, field.annotation])
        group = _find_group(field.annotation)
        if mark is not None:
            members = _part_members(mark, value)
        elif group is not None:
            members = _group_members(group, value)
        else:
            members = ()
        yield Parameter(
            name=name,
            value=to_yaml(value) if present else "",
            type=type_text(schema["properties"][name]),
            description=field.description or "",
            package=mark.package if mark else None,
            part=_part_name(value) if mark else None,
            members=members,
        )


def to_yaml(value: Any) -> str:
    """Return ``value`` as one line of YAML."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).splitlines()[0]


def _group_members(group: type[BaseModel], value: Any) -> tuple[Parameter, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return tuple(describe(group, value if isinstance(value, Mapping) else {}))
    if not value:
        return tuple(describe(group, {}))
    return tuple(
        Parameter(str(index), to_yaml(entry), "", "", members=_group_members(group, entry))
        for index, entry in enumerate(value)
    )


def _part_members(mark: FromRegistry, ref: Any) -> tuple[Parameter, ...]:
    if isinstance(ref, list):
        return tuple(
            Parameter(str(index), to_yaml(entry), "", "", part=_part_name(entry), members=_part_members(mark, entry))
            for index, entry in enumerate(ref)
        )
    try:
        name, values = registry.split(ref)
        part = registry.get(mark.package, name)
    except ValueError:  # null, or a name that does not exist, which ``parameters.validate`` reports
        return ()
    descriptions, nested = argument_descriptions(part), getattr(part, "parts", {})
    arguments = []
    for argument in inspect.signature(part).parameters.values():
        if argument.name in mark.injected or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        package = nested.get(argument.name)
        value = values.get(argument.name)
        members = _part_members(FromRegistry(package, mark.injected), value) if package and value else ()
        text = to_yaml(value) if argument.name in values else _default(argument)
        description, inner = descriptions.get(argument.name, ""), _part_name(value) if package else None
        arguments.append(Parameter(argument.name, text, "", description, package, inner, members))
    return tuple(arguments)


def _part_name(ref: Any) -> str | None:
    try:
        return registry.split(ref)[0]
    except ValueError:  # null, or a list of parts
        return None


def _default(argument: inspect.Parameter) -> str:
    if argument.default is argument.empty:
        return ""
    try:
        return f"{to_yaml(argument.default)} (default)"
    except yaml.YAMLError:  # an object that no file can name
        return f"{argument.default} (default)"


def _find_group(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a group, also in a list or an optional value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not issubclass(annotation, ClassRef):
        return annotation
    for argument in get_args(annotation):
        group = _find_group(argument)
        if group is not None:
            return group
    return None


def parts_table(package: str) -> dict[str, str]:
    """First docstring line of each part of ``package``, by the part's name, in alphabetical order."""
    return {name: summary(part) for name, part in sorted(registry.registered(package).items())}
