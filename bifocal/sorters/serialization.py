"""A sorter as a folder: ``config.json``, and ``model.safetensors`` where it has weights."""

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from bifocal import registry

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def build_sorter(name: str, arguments: Mapping[str, Any], length: int) -> nn.Module:
    """Build the sorter ``name``; one that is made for a length is made for ``length``.

    Raises:
        ValueError: the name or an argument is unknown, or ``length`` is among the arguments.
    """
    if "length" in arguments:
        raise ValueError("length is given beside the sorter, not among its arguments: move it there")
    takes_length = "length" in inspect.signature(registry.get("bifocal.sorters", name)).parameters
    made_for = {"length": length} if takes_length else {}
    sorter: nn.Module = registry.build("bifocal.sorters", name, **arguments, **made_for)
    return sorter


def save_sorter(directory: Path, sorter: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Write ``sorter`` into ``directory``.

    Args:
        arguments: what it was built with, its length left out.
    """
    config = {
        "name": type(sorter).__name__,
        "arguments": dict(arguments),
        "length": getattr(sorter, "length", None),
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    if sorter.state_dict():
        save_file({key: value.contiguous() for key, value in sorter.state_dict().items()}, directory / WEIGHTS)


def load_sorter(directory: Path) -> nn.Module:
    """The sorter that ``save_sorter`` wrote, ready for use: in evaluation mode, its weights frozen.

    Raises:
        FileNotFoundError: there is none; says which stage writes it.
    """
    path = directory / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no sorter (no {CONFIG}): run the stage pretrain_sorter")
    config = json.loads(path.read_text())
    length = {} if config["length"] is None else {"length": config["length"]}
    sorter: nn.Module = registry.build("bifocal.sorters", config["name"], **config["arguments"], **length)
    if sorter.state_dict():
        sorter.load_state_dict(load_file(directory / WEIGHTS))
    return sorter.eval().requires_grad_(False)
