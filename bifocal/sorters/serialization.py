"""Sorters on disk: ``config.json``, and ``model.safetensors`` if the sorter has weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from bifocal.registry import build
from bifocal.serialization import load_config, load_state, save_network


def save_sorter(directory: Path, sorter: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Write ``sorter`` to ``directory``.

    Args:
        arguments: arguments of its class, without ``length``.

    Example:
        >>> from tempfile import mkdtemp
        >>> from bifocal.sorters import PositionwiseLSTMSorter
        >>> directory = Path(mkdtemp())
        >>> save_sorter(directory, PositionwiseLSTMSorter(length=8, hidden=4), {"hidden": 4})
        >>> load_sorter(directory).length
        8
    """
    length = {"length": sorter.length} if hasattr(sorter, "length") else {}
    save_network(
        directory, {"name": type(sorter).__name__, **arguments, **length}, sorter.state_dict()
    )


def load_sorter(directory: Path) -> nn.Module:
    """Return the sorter that ``save_sorter`` wrote, in evaluation mode and with frozen weights.

    Raises:
        FileNotFoundError: the directory holds no sorter.
    """
    sorter: nn.Module = build("bifocal.sorters", load_config(directory, "sorter"))
    if sorter.state_dict():
        sorter.load_state_dict(load_state(directory, "sorter"))
    return sorter.eval().requires_grad_(False)
