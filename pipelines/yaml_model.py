"""YAML files beside the code, validated by pydantic."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from runtime.parameters import load_yaml

T = TypeVar("T")


def load_yaml_model(path: Path, validate: Callable[[Any], T]) -> T:
    """Return the YAML or JSON in ``path``, validated by pydantic; the ``ValueError`` lists all invalid entries."""
    try:
        return validate(load_yaml(path.read_text()))
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name} is not YAML: {error}") from error
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, entry['loc'])) or 'whole file'}: {entry['msg'].removeprefix('Value error, ')}"
            for entry in error.errors()
        ]
        raise ValueError(f"{path.name}:\n  " + "\n  ".join(problems)) from error
