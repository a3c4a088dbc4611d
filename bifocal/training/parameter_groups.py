"""Groups of parameters: each has its own factor of the learning rate."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from bifocal.training.freezing import check_module_names, most_specific_rule


def parameter_groups(model: nn.Module, factors: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the parameters of ``model`` in groups of one learning rate each.

    Frozen parameters are in a group, too: they may train in a later epoch, and without a gradient nothing changes them.

    Args:
        factors: ``{"backbone": 0.1}``: ``run_epochs`` multiplies the learning rate of that module by 0.1. The most
            specific name wins, as in ``apply_freezing``.

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
        rule = most_specific_rule(name, factors)
        groups.setdefault(1.0 if rule is None else factors[rule], []).append(parameter)
    return [{"params": parameters, "factor": factor} for factor, parameters in groups.items()]
