"""Networks on disk: ``config.json`` says how to build a network, ``model.safetensors`` holds its weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def save_network(directory: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write a network to ``directory``, which is created if necessary.

    Args:
        config: arguments that build the network again, as JSON can hold them.
        state: its ``state_dict()``; if it is empty, no ``model.safetensors`` is written.

    Example:
        >>> from tempfile import mkdtemp
        >>> import torch
        >>> directory = Path(mkdtemp())
        >>> save_network(directory, {"name": "Linear", "dim": 2}, torch.nn.Linear(2, 2).state_dict())
        >>> load_config(directory)
        {'dim': 2, 'name': 'Linear'}
        >>> sorted(load_state(directory))
        ['bias', 'weight']
    """
    directory.mkdir(parents=True, exist_ok=True)
    config_path, weights_path = directory / CONFIG_FILE, directory / WEIGHTS_FILE
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    # The configuration goes first and comes last: a directory that has one is complete.
    config_path.unlink(missing_ok=True)
    weights_path.unlink(missing_ok=True)
    if state:
        partial = weights_path.with_name(weights_path.name + ".partial")
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, partial)
        partial.replace(weights_path)
    partial = config_path.with_name(config_path.name + ".partial")
    partial.write_text(text)
    partial.replace(config_path)


def load_config(directory: Path, expected: str = "network") -> dict[str, Any]:
    """Return the configuration that ``save_network`` wrote.

    Args:
        expected: what the directory should hold, for the error message: "sorter".

    Raises:
        FileNotFoundError: there is no ``config.json``.
    """
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {expected}: {CONFIG_FILE} is missing")
    config: dict[str, Any] = json.loads(path.read_text())
    return config


def load_state(directory: Path, expected: str = "network") -> dict[str, Tensor]:
    """Return the weights that ``save_network`` wrote, on the CPU.

    Args:
        expected: as for ``load_config``.

    Raises:
        FileNotFoundError: there is no ``model.safetensors``.
        ValueError: the file is damaged.
    """
    path = directory / WEIGHTS_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no weights of a {expected}: {WEIGHTS_FILE} is missing")
    try:
        state: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is no complete file of weights ({error}): write it again") from error
    return state
