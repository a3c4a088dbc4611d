"""Description of a stage's parameters, for ``--help`` and the tables of the READMEs."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from bifocal import registry
from runtime.parameters import dump_yaml
from runtime.spec import ClassRef, FromRegistry, find_mark, nested_models

NAMES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
}
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


@dataclass(frozen=True)
class Parameter:
    """A value of ``params.yaml``, or a group of values."""

    name: str  # key, or position in a list
    value: str  # one line of YAML; empty if it is not set
    type: str  # with the range, such as "integer ≥ 1"; empty for arguments of parts
    description: str  # one sentence or phrase
    package: str | None = (
        None  # package of the parts that the parameter may name, if it names parts
    )
    part: str | None = None  # name of the chosen part, if it names one
    members: tuple["Parameter", ...] = ()  # group members, list entries, or arguments of a part


def describe(model: type[BaseModel], section: Mapping[str, Any]) -> Iterator[Parameter]:
    """Yield the parameters of a section in the order of their declaration."""
    schema = model.model_json_schema()
    for name, field in model.model_fields.items():
        value, present = section.get(name), name in section
        mark = find_mark(field)
        group = next(
            (model for model in nested_models(field) if not issubclass(model, ClassRef)), None
        )
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
    return dump_yaml(value, default_flow_style=True, width=10_000).splitlines()[0]


def _group_members(group: type[BaseModel], value: Any) -> tuple[Parameter, ...]:
    if isinstance(value, list) and value:
        return tuple(
            Parameter(str(index), to_yaml(entry), "", "", members=_group_members(group, entry))
            for index, entry in enumerate(value)
        )
    return tuple(describe(group, value if isinstance(value, Mapping) else {}))


def _part_members(mark: FromRegistry, ref: Any) -> tuple[Parameter, ...]:
    if isinstance(ref, list):
        return tuple(
            Parameter(
                str(index),
                to_yaml(entry),
                "",
                "",
                part=_part_name(entry),
                members=_part_members(mark, entry),
            )
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
        if argument.name in mark.injected or argument.kind in (
            argument.VAR_POSITIONAL,
            argument.VAR_KEYWORD,
        ):
            continue
        package = nested.get(argument.name)
        value = values.get(argument.name)
        members = (
            _part_members(FromRegistry(package, mark.injected), value) if package and value else ()
        )
        text = to_yaml(value) if argument.name in values else _default(argument)
        description, inner = (
            descriptions.get(argument.name, ""),
            _part_name(value) if package else None,
        )
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


def parts_table(package: str) -> dict[str, str]:
    """First sentence in the docstring of each part of ``package``, by the part's name, sorted."""
    parts = sorted(registry.registered(package).items())
    docs = {name: (inspect.getdoc(part) or "").partition("\n\n")[0] for name, part in parts}
    return {name: " ".join(doc.split()) for name, doc in docs.items()}


def argument_descriptions(part: type) -> dict[str, str]:
    """Description of each constructor argument, from ``Args:`` in the docstrings of a class and its
    bases.

    Example:
        >>> class Loss:
        ...     '''Triplet loss.
        ...
        ...     Args:
        ...         margin: of the hinge,
        ...             in units of the score.
        ...     '''
        >>> argument_descriptions(Loss)
        {'margin': 'of the hinge, in units of the score.'}
    """
    descriptions: dict[str, str] = {}
    for base in reversed(part.__mro__):
        section = re.search(
            r"^Args:\n((?: .*\n?|\n)*)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE
        )
        entries = re.findall(
            r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {5}.*)*)", section[1] if section else "", re.MULTILINE
        )
        for names, text in entries:
            descriptions |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return descriptions


def type_text(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema, as pydantic makes it of one field, in a few words.

    Example:
        >>> type_text({"type": "integer", "minimum": 1})
        'integer ≥ 1'
        >>> type_text(
        ...     {
        ...         "anyOf": [
        ...             {"type": "array", "items": {"enum": ["train", "val"]}},
        ...             {"type": "null"},
        ...         ]
        ...     }
        ... )
        'list of train or val, or null'
    """
    if "anyOf" in schema:
        options = [type_text(option) for option in schema["anyOf"]]
        return (", or " if " or " in options[0] else " or ").join(options)
    if "$ref" in schema:
        return "part" if schema["$ref"].endswith("/ClassRef") else "group"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_plural(type_text(schema.get('items', {})))}"
    if schema.get("type") == "object":
        return "mapping"
    if schema.get("format") == "path":
        return "path"
    limits = [f"{sign} {schema[key]:,}" for key, sign in LIMITS.items() if key in schema]
    return " ".join([NAMES.get(schema.get("type", ""), "any value"), " and ".join(limits)]).strip()


def _plural(text: str) -> str:
    noun, space, limits = text.partition(" ")
    return (
        f"{noun}s{space}{limits}"
        if noun in ("integer", "number", "group", "part", "path", "text")
        else text
    )
