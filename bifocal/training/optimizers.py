"""Optimizers of ``torch.optim`` by name."""

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bifocal import registry


def build_optimizer(
    optimizer: Any, parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]], learning_rate: float
) -> Optimizer:
    """Build an optimizer of ``torch.optim``.

    Args:
        optimizer: its name, or a mapping ``{"name": "SGD", "momentum": 0.9}``.
        parameters: parameters, or groups of them, see ``bifocal.training.parameter_groups``.

    Raises:
        ValueError: ``torch.optim`` has no such class, or the class does not accept one of the arguments.

    Example:
        >>> build_optimizer({"name": "SGD", "momentum": 0.9}, nn.Linear(2, 2).parameters(), 0.1).defaults["momentum"]
        0.9
    """
    built: Optimizer = registry.build("torch.optim", optimizer, params=list(parameters), lr=learning_rate)
    return built
