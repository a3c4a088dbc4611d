"""Parameters: ``params.yaml``, overlaid by recipes and ``--set``, checked before any work starts."""

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from bifocal import registry
from runtime.spec import ClassRef, Component, FromRegistry, Params

ANY_TYPE = ConfigDict(arbitrary_types_allowed=True)
"""An argument may be annotated with what no file can give, as torch.optim's ``float | Tensor``."""


class ParameterError(ValueError):
    """Something in ``params.yaml``, a recipe or ``--set`` is wrong; the message says where, and what was expected."""


def load(path: Path, recipes: Sequence[Path] = (), settings: Sequence[str] = ()) -> dict[str, Any]:
    """The values of ``path``, overlaid by ``recipes`` in order and by ``settings`` like ``"train_embedding.dim=512"``.

    A part that a recipe or a setting names (``loss: {name: TripletLoss}``) replaces the former with all its arguments;
    a setting of the name alone (``loss.name=TripletLoss``) keeps them. Everything else is merged key by key.
    """
    values = _load(path)
    for recipe in recipes:
        values = merge(values, _load(recipe))
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ParameterError(f"--set {setting!r}: expected KEY=VALUE, such as train_embedding.dim=512")
        given = nested = yaml.safe_load(value)
        for name in reversed(key.split(".")):
            nested = {name: nested}
        values = _merge(values, nested, keep_arguments=not isinstance(given, Mapping))
    return values


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``top``; a part that ``top`` names replaces the former with its arguments."""
    return _merge(base, top, keep_arguments=False)


def _merge(base: Mapping[str, Any], top: Mapping[str, Any], *, keep_arguments: bool) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        former = base.get(key)
        whole = not keep_arguments and isinstance(value, Mapping) and "name" in value
        if isinstance(value, Mapping) and isinstance(former, Mapping) and not whole:
            merged[key] = _merge(former, value, keep_arguments=keep_arguments)
        else:
            merged[key] = value
    return merged


def validate(values: Mapping[str, Any], components: Iterable[Component]) -> dict[str, Params]:
    """The section of each component, typed.

    Raises:
        ParameterError: an unknown key or part, a wrong type, a value out of range; all of them, one per line.
    """
    components = list(components)
    known = ["seed", *(component.name for component in components)]
    problems = [f"{key}: unknown section; {registry.nearest(key, known)}" for key in values if key not in known]
    sections: dict[str, Params] = {}
    for component in components:
        section = values.get(component.name)
        if not isinstance(section, Mapping):
            problems.append(f"{component.name}: the section is missing")
            continue
        text = json.dumps({"seed": values.get("seed")} | dict(section), default=str)
        try:
            sections[component.name] = component.params.model_validate_json(text)
        except ValidationError as error:
            problems += [_explain(component.params, component.name, detail) for detail in error.errors()]
            continue
        problems += _check_parts(sections[component.name], component.name)
    if problems:
        raise ParameterError("parameters:\n  " + "\n  ".join(dict.fromkeys(problems)))
    return sections


def _load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ParameterError(f"{path}: no such file")
    try:
        values = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ParameterError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ParameterError(f"{path}: expected sections such as 'train_embedding:', got {type(values).__name__}")
    return values


def _explain(model: type[BaseModel], section: str, detail: Any) -> str:
    location = [str(step) for step in detail["loc"]]
    place = section if location != ["seed"] else ""
    where = ".".join(filter(None, [place, *location]))
    if detail["type"] == "extra_forbidden":
        known = [name for name in _fields_at(model, location[:-1]) if name != "seed"]
        return f"{where}: unknown key; {registry.nearest(location[-1], known)}"
    if detail["type"] == "missing":
        return f"{where}: missing, and it has no default"
    return f"{where}: got {detail['input']!r}; {detail['msg'].lower()}"


def _fields_at(model: type[BaseModel], location: Sequence[str]) -> list[str]:
    for step in location:
        field = model.model_fields.get(step)
        inner = field and next(nested_models(field.annotation), None)
        if inner is None:
            break
        model = inner
    return list(model.model_fields)


def nested_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models in a type, such as that of an optional group of values."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from nested_models(argument)


def _check_parts(section: BaseModel, where: str) -> Iterator[str]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        place = f"{where}.{name}"
        part_of = next((entry for entry in field.metadata if isinstance(entry, FromRegistry)), None)
        if isinstance(value, ClassRef) and part_of is not None:
            yield from _check_part(value, part_of, place)
        elif isinstance(value, BaseModel):
            yield from _check_parts(value, place)


def _check_part(part: ClassRef, part_of: FromRegistry, place: str) -> Iterator[str]:
    try:
        registry.check(part_of.package, part.name, part.arguments)
    except ValueError as error:
        yield f"{place}: {error}"
        return
    found = registry.find(part_of.package, part.name)
    accepted = inspect.signature(found).parameters
    for argument, value in part.arguments.items():
        if argument in part_of.injected:
            yield f"{place}.{argument}: leave it out, the stage gives it"
            continue
        try:
            TypeAdapter(accepted[argument].annotation, config=ANY_TYPE).validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            yield f"{place}.{argument}: got {value!r}; {error.errors()[0]['msg'].lower()}"
            continue
        package = getattr(found, "parts", {}).get(argument)
        if package is not None:
            for number, entry in enumerate(value):
                yield from _check_inner(entry, FromRegistry(package, part_of.injected), f"{place}.{argument}[{number}]")


def _check_inner(entry: dict[str, Any], part_of: FromRegistry, place: str) -> Iterator[str]:
    """A part among the arguments of a part."""
    if isinstance(entry.get("name"), str):
        yield from _check_part(ClassRef.model_validate(entry), part_of, place)
    else:
        yield f"{place}: got {entry!r}; write {{name: ...}} and its arguments"
