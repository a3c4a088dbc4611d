"""Ranking heads on disk: ``config.json`` and ``model.safetensors``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from bifocal.registry import build
from bifocal.serialization import load_config, load_state, save_network


def save_head(
    directory: Path, head: nn.Module, arguments: Mapping[str, Any], *, input_dim: int, task: str, labels: Sequence[str]
) -> None:
    """Write ``head`` to ``directory``.

    Args:
        arguments: arguments of its class, without ``input_dim`` and ``labels``.
        labels: names of its scores, in their order.
    """
    ref = {"name": type(head).__name__, **arguments, "input_dim": input_dim, "labels": len(labels)}
    save_network(directory, {"head": ref, "task": task, "labels": list(labels)}, head.state_dict())


def load_head(directory: Path) -> tuple[nn.Module, list[str]]:
    """Return the head that ``save_head`` wrote, in evaluation mode, and the names of its scores.

    Raises:
        FileNotFoundError: the directory holds no ranking head.
    """
    config = load_config(directory, "ranking head")
    head: nn.Module = build("bifocal.ranking_heads", config["head"])
    head.load_state_dict(load_state(directory, "ranking head"))
    return head.eval(), config["labels"]
