"""Validation of parameters against component declarations and part classes."""

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from bifocal import registry
from runtime.marks import FromRegistry, marked_values
from runtime.parameters.values import ParameterError
from runtime.spec import Component, Params

ANY_TYPE = ConfigDict(arbitrary_types_allowed=True)
"""Allow annotations that pydantic cannot validate, such as torch.optim's ``float | Tensor``."""


def validate(values: Mapping[str, Any], components: Iterable[Component], *, parts: bool = True) -> dict[str, Params]:
    """Return each section, typed; ``parts`` checks their classes (slow). One ``ParameterError`` lists all problems."""
    components = list(components)
    known = ["seed", "pipeline", *(component.name for component in components)]
    problems = [f"{key}: unknown section; {registry.suggest(key, known)}" for key in values if key not in known]
    sections: dict[str, Params] = {}
    for component in components:
        if component.name not in values:
            problems.append(f"{component.name}: the section is missing")
            continue
        section = values[component.name]
        if not isinstance(section, Mapping):
            problems.append(
                f"{component.name}: got {section!r}, expected a section: 'key: value' lines, indented below the name"
            )
            continue
        text = json.dumps({"seed": values.get("seed")} | dict(section), default=str)
        invalid = list(_check_parts(component.params, section, component.name)) if parts else []
        try:
            sections[component.name] = component.params.model_validate_json(text)
        except ValidationError as error:
            invalid += [_explain(component.params, component.name, detail) for detail in error.errors()]
        if parts and not invalid:
            invalid += [f"{component.name}: {message}" for message in sections[component.name].conflicts()]
        problems += invalid
    if problems:
        raise ParameterError("parameters:\n  " + "\n  ".join(dict.fromkeys(problems)))
    return sections


def nested_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the pydantic models in a type, such as an optional group of values or a list of groups."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from nested_models(argument)


def _explain(model: type[BaseModel], section: str, detail: Any) -> str:
    location = [str(step) for step in detail["loc"]]
    prefix = section if location != ["seed"] else ""
    where = ".".join(filter(None, [prefix, *location]))
    if detail["type"] == "extra_forbidden":
        known = [name for name in _fields_at(model, location[:-1]) if name != "seed"]
        return f"{where}: unknown key; {registry.suggest(location[-1], known)}"
    if detail["type"] == "missing":
        return f"{where}: missing, and it has no default"
    if detail["type"] == "value_error":  # of a validator of ours, which says all
        return f"{where}: {detail['ctx']['error']}"
    return f"{where}: got {detail['input']!r}; {detail['msg'].lower()}"


def _fields_at(model: type[BaseModel], location: Sequence[str]) -> list[str]:
    for step in location:
        if step.isdecimal():
            continue
        field = model.model_fields.get(step)
        inner = field and next(nested_models(field.annotation), None)
        if inner is None:
            break
        model = inner
    return list(model.model_fields)


def _check_parts(model: type[BaseModel], section: Mapping[str, Any], where: str) -> Iterator[str]:
    for location, value, mark in marked_values(model, section):
        if isinstance(mark, FromRegistry):
            yield from _check_part(value, mark, ".".join([where, *map(str, location)]))


def _check_part(ref: Any, mark: FromRegistry, where: str) -> Iterator[str]:
    try:
        name, arguments = registry.split(ref)
        registry.check(mark.package, name, arguments)
    except ValueError as error:
        yield f"{where}: {error}"
        return
    part = registry.get(mark.package, name)
    accepted = inspect.signature(part).parameters
    nested: Mapping[str, str] = getattr(part, "parts", {})
    problems = [
        f"{where}.{argument}: missing, and {name} has no default for it"
        for argument, parameter in accepted.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        and argument not in (*arguments, *mark.injected)
    ]
    for argument, value in arguments.items():
        if argument in mark.injected:
            problems.append(f"{where}.{argument}: leave it out, the stage passes it")
        elif argument in nested:
            inner = FromRegistry(nested[argument], mark.injected)
            problems += _check_nested(value, inner, accepted[argument].annotation, f"{where}.{argument}")
        else:
            problems += _check_type(value, accepted[argument].annotation, f"{where}.{argument}")
    if not problems and hasattr(part, "conflicts"):
        problems = [f"{where}: {message}" for message in part.conflicts(arguments)]
    yield from problems


def _check_nested(value: Any, mark: FromRegistry, annotation: Any, where: str) -> Iterator[str]:
    takes_list = get_origin(annotation) in (list, Sequence)
    if value is None:  # an optional part that is not set
        yield from _check_type(value, annotation, where)
        return
    if takes_list and not isinstance(value, list):
        yield f"{where}: got {value!r}, expected a list of parts: [{{name: ...}}, ...]"
        return
    for index, entry in enumerate(value if takes_list else [value]):
        yield from _check_part(entry, mark, f"{where}.{index}" if takes_list else where)


def _check_type(value: Any, annotation: Any, where: str) -> Iterator[str]:
    try:
        TypeAdapter(annotation, config=ANY_TYPE).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        yield f"{where}: got {value!r}; {error.errors()[0]['msg'].lower()}"
