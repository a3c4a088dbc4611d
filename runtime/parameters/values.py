"""Values of ``params.yaml``, overlaid by recipes and ``--set``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from runtime.parameters.yaml_text import load_yaml


class ParameterError(ValueError):
    """A value of ``params.yaml``, a recipe or ``--set`` is wrong; the message says where, and what was expected."""


def load(path: Path, recipes: Sequence[Path] = (), settings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of ``path``, overlaid by ``recipes`` and ``settings`` (``a.b.0.c=3``), key by key; lists
    replace lists. A named part replaces a part with its arguments, a setting of only a name keeps them.
    """
    values = _read_yaml(path)
    for recipe in recipes:
        values = overlay(values, recipe)
    return with_settings(values, settings)


def overlay(values: Mapping[str, Any], recipe: Path) -> dict[str, Any]:
    """Return ``values`` overlaid by a recipe."""
    return merge(values, _read_yaml(recipe))


def with_settings(values: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return ``values`` with single values set, see ``load``."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ParameterError(f"--set {setting!r}: expected KEY=VALUE, such as train_embedding.model.dim=512")
        value = nested = load_yaml(text)
        for name in reversed(key.split(".")):
            nested = {name: nested}
        values = _merge(values, nested, keep_arguments=not isinstance(value, Mapping), where="--set " + key)
    return values


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``top``; a part that ``top`` names replaces the part with its arguments."""
    return _merge(base, top, keep_arguments=False, where="")


def _merge(base: Mapping[str, Any], top: Mapping[str, Any], *, keep_arguments: bool, where: str) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        former = base.get(key)
        replaces = not isinstance(value, Mapping) or (not keep_arguments and "name" in value)
        if replaces:
            merged[key] = value
        elif isinstance(former, list) and value and all(str(index).isdecimal() for index in value):
            merged[key] = _merge_list(former, value, keep_arguments=keep_arguments, where=where)
        elif isinstance(former, str) and keep_arguments:  # the bare name of a part gets an argument
            merged[key] = {"name": former} | dict(value)
        elif isinstance(former, Mapping):
            merged[key] = _merge(former, value, keep_arguments=keep_arguments, where=where)
        else:
            merged[key] = value
    return merged


def _merge_list(base: list[Any], top: Mapping[str, Any], *, keep_arguments: bool, where: str) -> list[Any]:
    entries = {str(index): entry for index, entry in enumerate(base)}
    for index in top:
        if str(index) not in entries:
            raise ParameterError(f"{where}: the list has no entry {index}; it has {len(base)}, counted from 0")
    return list(
        _merge(
            entries, {str(index): value for index, value in top.items()}, keep_arguments=keep_arguments, where=where
        ).values()
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ParameterError(f"{path}: no such file")
    try:
        values = load_yaml(path.read_text())
    except yaml.YAMLError as error:
        raise ParameterError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ParameterError(f"{path}: expected sections such as 'train_embedding:', got {type(values).__name__}")
    return values
