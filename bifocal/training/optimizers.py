"""Optimizers of ``torch.optim`` by name, and groups of parameters with their own learning rate and weight decay."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bifocal import registry
from bifocal.training.freezing import check_module_names, most_specific_rule


def build_optimizer(
    optimizer: Any, parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]], learning_rate: float
) -> Optimizer:
    """Build an optimizer of ``torch.optim`` for parameters, or for groups of them."""
    built: Optimizer = registry.build("torch.optim", optimizer, params=list(parameters), lr=learning_rate)
    return built


def parameter_groups(model: nn.Module, factors: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the parameters of ``model``, also frozen ones, in groups of one factor; the most specific name wins."""
    check_module_names(model, factors, "learning_rate_factors")
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        rule = most_specific_rule(name, factors)
        groups.setdefault(1.0 if rule is None else factors[rule], []).append(parameter)
    return [{"params": parameters, "factor": factor} for factor, parameters in groups.items()]


def limit_weight_decay(groups: Iterable[dict[str, Any]], optimizer: Any) -> list[dict[str, Any]]:
    """Return the groups such that weight decay changes only matrices, not biases, norms and scalars of a loss.

    He et al., "Bag of tricks for image classification", CVPR 2019, section 3.1, "no bias decay"; a temperature that
    decays would be pulled to 1.
    """
    if not registry.all_arguments("torch.optim", optimizer).get("weight_decay"):
        return list(groups)
    limited = []
    for group in groups:
        parameters = list(group["params"])
        matrices = [parameter for parameter in parameters if parameter.ndim > 1]
        others = [parameter for parameter in parameters if parameter.ndim <= 1]
        limited += [group | {"params": matrices}] if matrices else []
        limited += [group | {"params": others, "weight_decay": 0.0}] if others else []
    return limited
