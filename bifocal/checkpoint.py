"""Checkpoints: weights, optimizer state, random state and progress in one safetensors file, replaced atomically."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer


def save_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, progress: Mapping[str, Any]) -> None:
    """Write everything that the next step depends on.

    Args:
        progress: position of the run, as JSON can hold it; floats are restored exactly.
    """
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for parameter, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{parameter}.{name}": tensor for name, tensor in state.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    write_tensors(path, tensors, progress)


def load_checkpoint(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: Optimizer) -> None:
    """Restore the model, the optimizer and the random state from the tensors of ``save_checkpoint``."""
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, parameter, key = name.split(".", 2)
            state.setdefault(int(parameter), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and JSON metadata to one safetensors file, completely or not at all.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "weights.safetensors"
        >>> write_tensors(path, {"weight": torch.ones(2)}, {"epoch": 3})
        >>> read_tensors(path)
        ({'weight': tensor([1., 1.])}, {'epoch': 3})
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".new")
    save_file(
        {name: t.contiguous() for name, t in tensors.items()}, partial, metadata={"notes": json.dumps(dict(metadata))}
    )
    partial.replace(path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the metadata that ``write_tensors`` wrote.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["notes"])  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is no complete checkpoint ({error}): delete it to train from the start") from error
