"""Networks on disk, ``config.json`` and ``model.safetensors``, and tensors with JSON metadata in
one file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from bifocal.durable import replace_file, write_json
from bifocal.onnx.files import read_json

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def save_network(directory: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write the arguments that build a network, and its weights, if it has any, to
    ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    config_path, weights_path = directory / CONFIG_FILE, directory / WEIGHTS_FILE
    # The configuration goes first and comes last: a directory that has one is complete.
    config_path.unlink(missing_ok=True)
    weights_path.unlink(missing_ok=True)
    if state:
        tensors = {name: tensor.contiguous() for name, tensor in state.items()}
        replace_file(weights_path, lambda file: save_file(tensors, file))
    write_json(config_path, config)


def load_config(directory: Path, expected: str = "network") -> dict[str, Any]:
    """Return the configuration that ``save_network`` wrote; errors name the ``expected`` content,
    such as "sorter"."""
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {expected}: {CONFIG_FILE} is missing")
    config: dict[str, Any] = read_json(path)
    return config


def load_state(directory: Path, expected: str = "network") -> dict[str, Tensor]:
    """Return the weights that ``save_network`` wrote, on the CPU; errors name the ``expected``
    content."""
    path = directory / WEIGHTS_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{directory} holds no weights of a {expected}: {WEIGHTS_FILE} is missing"
        )
    try:
        state: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a complete file of weights ({error}): write it again"
        ) from error
    return state


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and JSON metadata to one safetensors file, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contiguous, notes = (
        {name: t.contiguous() for name, t in tensors.items()},
        json.dumps(dict(metadata)),
    )
    replace_file(path, lambda file: save_file(contiguous, file, metadata={"notes": notes}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the metadata that ``write_tensors`` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            names, notes = file.keys(), json.loads(file.metadata()["notes"])
            return {name: file.get_tensor(name) for name in names}, notes
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a complete checkpoint ({error}): delete it to train from the start"
        ) from error
