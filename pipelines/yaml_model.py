"""Files of declarations beside the code: read, and checked before anything is done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

Read = TypeVar("Read")


def declared(path: Path, check: Callable[[Any], Read]) -> Read:
    """What ``check``, a validation by pydantic, makes of the YAML or JSON in ``path``.

    Raises:
        ValueError: it is no YAML, or an entry is wrong; all of them, one per line.
    """
    try:
        return check(yaml.safe_load(path.read_text()))
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name} is not YAML: {error}") from error
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, found['loc'])) or 'all of it'}: {found['msg'].removeprefix('Value error, ')}"
            for found in error.errors()
        ]
        raise ValueError(f"{path.name}:\n  " + "\n  ".join(problems)) from error
