"""Optimizers of ``torch.optim`` by name."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bifocal import registry
from bifocal.training.freezing import check_module_names, most_specific_rule


def build_optimizer(
    optimizer: Any, parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]], learning_rate: float
) -> Optimizer:
    """Build an optimizer of ``torch.optim``.

    Args:
        optimizer: its name, or a mapping ``{"name": "SGD", "momentum": 0.9}``.
        parameters: parameters, or groups of them, see ``parameter_groups``.

    Raises:
        ValueError: ``torch.optim`` has no such class, or the class does not accept one of the arguments.

    Example:
        >>> build_optimizer({"name": "SGD", "momentum": 0.9}, nn.Linear(2, 2).parameters(), 0.1).defaults["momentum"]
        0.9
    """
    built: Optimizer = registry.build("torch.optim", optimizer, params=list(parameters), lr=learning_rate)
    return built


def parameter_groups(model: nn.Module, factors: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the trainable parameters of ``model`` in groups of one learning rate each.

    Args:
        factors: ``{"backbone": 0.1}``: ``run_epochs`` multiplies the learning rate of that module by 0.1.

    Raises:
        ValueError: the model has no module of a name.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        >>> [(len(group["params"]), group["factor"]) for group in parameter_groups(model, {"0": 0.1})]
        [(2, 0.1), (2, 1.0)]
    """
    check_module_names(model, factors, "learning_rate_factors")
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rule = most_specific_rule(name, factors)
            groups.setdefault(1.0 if rule is None else factors[rule], []).append(parameter)
    return [{"params": parameters, "factor": factor} for factor, parameters in groups.items()]
