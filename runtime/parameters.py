"""Parameters: ``params.yaml``, overlaid by recipes and ``--set``, validated before any work, and
built as parts."""

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode

from bifocal import registry
from runtime.part_names import wrong_names
from runtime.spec import (
    Component,
    FromRegistry,
    Params,
    StrictModel,
    find_mark,
    marked_values,
    nested_models,
)

TAG = "tag:yaml.org,2002:"
NUMBERS = re.compile(r"[-+]?\.?\d[\w.+-]*")
"""Texts that YAML 1.2 may read as a number."""
T = TypeVar("T")
Values = Mapping[str, Any]
MAX_CHARACTERS, MAX_VALUES = 2**18, 100_000
ANY_TYPE = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
"""Allow annotations that pydantic cannot validate, such as torch.optim's ``float | Tensor``."""


class ParameterError(ValueError):
    """A value of ``params.yaml``, a recipe or ``--set`` is wrong; the message says where, and what
    was expected."""


class Layer(NamedTuple):
    """Values that overlay others: of a recipe, or of one setting."""

    values: Values
    keep: bool  # a part that is only named keeps its arguments
    where: str  # of the setting, for messages


def load(path: Path, recipes: Sequence[Path] = (), settings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of ``path``, overlaid by ``recipes`` and ``settings`` (``a.b.0.c=3``), key
    by key; lists replace lists. A named part replaces a part with its arguments, a setting of only
    a name keeps them.
    """
    return overlay(_read_sections(path), layers(recipes, settings))


def layers(recipes: Sequence[Path], settings: Sequence[str]) -> list[Layer]:
    """Read recipes and settings, see ``load``."""
    found = [Layer(_read_sections(recipe), False, "") for recipe in recipes]
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ParameterError(
                f"--set {setting!r}: expected KEY=VALUE, such as train_embedding.model.dim=512"
            )
        try:
            value = nested = load_yaml(text)
        except YAMLError as error:
            raise ParameterError(
                f"--set {key}: {text!r} is not YAML: {error}; quote it: '\"text\"'"
            ) from error
        for name in reversed(key.split(".")):
            nested = {name: nested}
        found.append(Layer(nested, not isinstance(value, Mapping), "--set " + key))
    return found


def stated(layers: Sequence[Layer], section: str) -> list[Values]:
    """Return what each layer states of a section."""
    found = (layer.values.get(section) for layer in layers)
    return [values for values in found if isinstance(values, Mapping)]


def overlay(values: dict[str, Any], layers: Sequence[Layer]) -> dict[str, Any]:
    """Return values overlaid by layers, one after the other."""
    for layer in layers:
        values = _merge(values, layer.values, keep=layer.keep, sections=True, where=layer.where)
    return values


def merge(base: Values, top: Values, *, parts: bool = True) -> dict[str, Any]:
    """Return ``base`` with the values of ``top``; a part that ``top`` names replaces the part with
    its arguments.

    Without ``parts``, a key ``name`` is a key as any other.
    """
    return _merge(base, top, keep=not parts)


def _merge(
    base: Values, top: Values, *, keep: bool = False, sections: bool = False, where: str = ""
) -> dict[str, Any]:
    def merged(previous: Any, value: Any, part: bool) -> Any:
        if not isinstance(value, Mapping) or ("name" in value and part):
            return value
        if isinstance(previous, list) and value and all(str(index).isdecimal() for index in value):
            entries = dict(enumerate(previous))
            for index, entry in value.items():
                if int(index) not in entries:
                    raise ParameterError(
                        f"{where}: the list has no entry {index}; it has {len(previous)}, "
                        "counted from 0"
                    )
                entries[int(index)] = merged(entries[int(index)], entry, part)
            return list(entries.values())
        if isinstance(previous, str) and keep:  # the bare name of a part gets an argument
            previous = {"name": previous}
        return overlaid(previous, value) if isinstance(previous, Mapping) else value

    def overlaid(base: Values, top: Values, part: bool = not keep) -> dict[str, Any]:
        return {**base, **{key: merged(base.get(key), value, part) for key, value in top.items()}}

    return overlaid(
        base, top, not keep and not sections
    )  # a section is not a part: it may have a parameter 'name'


def read_yaml(path: Path) -> Any:
    """Return the value of a YAML file; ``ParameterError`` if it is missing, not UTF-8, or not
    YAML."""
    if not path.is_file():
        raise ParameterError(f"{path}: no such file")
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        byte = f"the byte {error.object[error.start]:#x} at position {error.start}"
        raise ParameterError(f"{path} is not UTF-8 ({byte}): save it with this encoding") from error
    except YAMLError as error:
        raise ParameterError(f"{path} is not YAML: {error}") from error


def _read_sections(path: Path) -> dict[str, Any]:
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ParameterError(
            f"{path}: expected sections such as 'train_embedding:', got {type(values).__name__}"
        )
    return values


class _Constructor(SafeConstructor):
    """Values that JSON holds, as DVC reads them; a time is a text."""


_KINDS = ("null", "bool", "int", "float", "str", "seq", "map")
_Constructor.yaml_constructors = {
    TAG + kind: SafeConstructor.yaml_constructors[TAG + kind] for kind in _KINDS
} | {
    None: SafeConstructor.construct_undefined,
    TAG + "timestamp": SafeConstructor.construct_yaml_str,
}


def load_yaml(text: str) -> Any:
    """Return the value of a YAML 1.2 text: mappings, lists, texts, numbers, true, false and null.

    Raises:
        YAMLError: the text is not YAML, repeats a key, has another type, is above 256 KiB, or its
            aliases stand for more than 100,000 values; the message is one line.
    """
    if len(text) > MAX_CHARACTERS:
        raise YAMLError(f"{len(text):,} characters, more than {MAX_CHARACTERS:,}")
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    try:
        node = reader.compose(text)
        if node is None:
            return None
        _count_values(node, {})
        return reader.constructor.construct_document(node)
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        problem = " ".join(str(error.problem or error.context).split())
        raise YAMLError(line + problem.replace('"', "'")) from error
    except RecursionError as error:
        raise YAMLError("the values are nested too deeply") from error
    except (YAMLError, ValueError, KeyError, IndexError, TypeError) as error:  # of '!!int x'
        raise YAMLError(" ".join(str(error).split())) from error


class _Dumper(yaml.SafeDumper):
    """Quotes texts that either version of YAML would read as another type."""


_Dumper.add_implicit_resolver(TAG + "float", NUMBERS, None)


def dump_yaml(values: Any, **options: Any) -> str:
    """Return the YAML text of values, in their order; ``load_yaml``, DVC and PyYAML read the same
    from it."""
    return str(yaml.dump(values, Dumper=_Dumper, sort_keys=False, **options))


def _count_values(node: Any, sizes: dict[int, int]) -> int:
    """Return the number of values of a node, also those that aliases stand for; ``sizes`` has those
    of earlier nodes, and 0 of a node that is being counted."""
    if id(node) in sizes:
        if not sizes[id(node)]:
            raise YAMLError(f"line {node.start_mark.line + 1}: the value contains itself")
        return sizes[id(node)]
    sizes[id(node)] = 0
    entries = [] if isinstance(node, ScalarNode) else node.value
    if isinstance(node, MappingNode):
        entries = [part for pair in entries for part in pair]
    size = 1 + sum(_count_values(entry, sizes) for entry in entries)
    if size > MAX_VALUES:
        raise YAMLError(
            f"line {node.start_mark.line + 1}: more than {MAX_VALUES:,} values, with those that "
            "aliases stand for"
        )
    sizes[id(node)] = size
    return size


def validate(
    values: Mapping[str, Any], components: Iterable[Component], *, others: Collection[str] = ()
) -> dict[str, Params]:
    """Return the section of each component, typed; one ``ParameterError`` lists all wrong keys,
    types and names of parts, or else all wrong values of parts, or else all conflicts.

    Args:
        others: names of further sections, which are not checked.
    """
    components = list(components)
    known = ["seed", "pipeline", *others, *(component.name for component in components)]
    problems = [
        f"{key}: unknown section; {registry.suggest(key, set(known))}"
        for key in values
        if key not in known
    ]
    sections: dict[str, Params] = {}
    parts = list[tuple[str, Any, FromRegistry]]()
    for component in components:
        name, section = component.name, values.get(component.name)
        if name not in values:
            problems.append(f"{name}: the section is missing")
        elif not isinstance(section, Mapping):
            problems.append(
                f"{name}: got {section!r}, expected a section: 'key: value' lines, indented "
                "below the name"
            )
        else:
            parts += (
                (".".join([name, *map(str, location)]), value, mark)
                for location, value, mark in marked_values(component.params, section)
                if isinstance(mark, FromRegistry)
            )
            try:
                text = json.dumps({"seed": values.get("seed")} | dict(section), default=str)
                sections[name] = component.params.model_validate_json(text)
            except ValidationError as error:
                problems += [_explain(component.params, name, detail) for detail in error.errors()]
    problems += [
        f"{where}: {message}"
        for where, value, mark in parts
        for message in wrong_names(mark.package, value)
    ]
    # The other checks import torch.
    problems = problems or [
        problem for where, value, mark in parts for problem in _check_part(value, mark, where)
    ]
    problems = problems or [
        f"{name}: {message}"
        for name, section in sections.items()
        for message in section.conflicts()
    ]
    if problems:
        raise ParameterError("parameters:\n  " + "\n  ".join(dict.fromkeys(problems)))
    return sections


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
        inner = nested_models(field) if field else []
        if not inner:
            break
        model = inner[0]
    return list(model.model_fields)


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
            problems += _check_nested(
                value, inner, accepted[argument].annotation, f"{where}.{argument}"
            )
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
        TypeAdapter(annotation, config=ANY_TYPE).validate_json(
            json.dumps(value, allow_nan=False), strict=True
        )
    except ValidationError as error:
        yield f"{where}: got {value!r}; {error.errors()[0]['msg'].lower()}"
    except ValueError:
        yield f"{where}: got {value!r}; expected finite numbers"


def options_of(kind: Callable[..., T], section: StrictModel) -> T:
    """Return a dataclass with the values of the parameters that its fields name."""
    names = inspect.signature(kind).parameters
    return kind(**{name: getattr(section, name) for name in names})


def build_parts(group: StrictModel, **available: Any) -> dict[str, Any]:
    """Return the values of a section or a group, with a built part for each reference, see
    ``registry.build``."""
    values = {name: getattr(group, name) for name in type(group).model_fields}
    for name, field in type(group).model_fields.items():
        mark, value = find_mark(field), values[name]
        if mark is not None and isinstance(value, list):
            values[name] = [registry.build(mark.package, ref, **available) for ref in value]
        elif mark is not None and value is not None:
            values[name] = registry.build(mark.package, value, **available)
    return values
