"""A checkpoint: weights, optimizer state, random state and progress in one safetensors file, replaced atomically."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bifocal.serialization import write_tensors


def save_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, progress: Mapping[str, Any]) -> None:
    """Write everything that the next step depends on; ``progress`` is the position of the run, as JSON can hold it."""
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
