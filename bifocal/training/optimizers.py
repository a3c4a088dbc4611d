"""Optimizers by name, groups of parameters, frozen modules, and averaged weights: what a step
changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from bifocal import registry
from bifocal.registry import check_range
from bifocal.training.precision import Precision
from bifocal.training.schedules import Constant, Schedule

FreezeSchedule = Mapping[str, int | None]
"""``{"image_encoder.backbone": 8}``: a module or parameter is frozen until this epoch, from 0;
None: always."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Learning rate of some epochs, and the modules that train in them.

    Args:
        frozen_until: modules that are frozen in the first epochs, None: in all.
        learning_rate_factors: factors of the learning rates of modules.
    """

    epochs: int
    learning_rate: float
    schedule: Schedule = field(default_factory=Constant)
    frozen_until: FreezeSchedule = field(default_factory=dict)
    learning_rate_factors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepOptions:
    """Options of the steps of every training.

    Args:
        optimizer: reference to a class of ``torch.optim``.
        precision: of matrix products; weights, sums and the loss stay float32.
        max_grad_norm: l2 norm to which gradients are clipped.
        micro_batch_size: examples that are encoded at a time; an embedding needs a ``TwoTower``.
        checkpoint_every_seconds: least time between two checkpoints inside an epoch.
    """

    optimizer: Any = "Adam"
    precision: Precision = "float32"
    max_grad_norm: float | None = 2.0
    micro_batch_size: int | None = None
    checkpoint_every_seconds: float = 300.0


def check_module_names(
    model: nn.Module, names: Iterable[str], argument: str = "frozen_until"
) -> None:
    """Raise ``ValueError`` if ``argument`` names a module or parameter that the model lacks."""
    known = {name for name, _ in model.named_modules() if name} | {
        name for name, _ in model.named_parameters()
    }
    for name in names:
        if name not in known:
            # List only the siblings: all names of a backbone would fill the screen.
            parent = name.rpartition(".")[0]
            siblings = {other for other in known if other.rpartition(".")[0] == parent}
            siblings = siblings or {child for child, _ in model.named_children()}
            raise ValueError(
                f"{argument}: the model has no {name!r}; {registry.suggest(name, siblings)}"
            )


def check_phases(model: nn.Module, phases: Sequence[Phase]) -> None:
    """Raise ``ValueError`` without phases, or if one names a module or parameter that the model
    lacks: a mistake in the last phase must not cost the training of the first."""
    if not phases:
        raise ValueError("there are no phases to train: give one or more")
    for phase in phases:
        check_module_names(model, phase.frozen_until)
        check_module_names(model, phase.learning_rate_factors, "learning_rate_factors")


def apply_freezing(model: nn.Module, frozen_until: FreezeSchedule, epoch: int) -> None:
    """Set ``model`` to training mode, and freeze the modules whose epoch has not come.

    The most specific name wins. A frozen module does not change at all: its parameters get no
    gradient, and its buffers (the statistics of batch norm) stay in evaluation mode. Other modules
    keep their ``requires_grad``.
    """
    model.train()
    for name, parameter in model.named_parameters():
        rule = most_specific_rule(name, frozen_until)
        if rule is not None:
            parameter.requires_grad_(_trains(frozen_until[rule], epoch))
    for name, module in model.named_modules():
        rule = most_specific_rule(name, frozen_until)
        if rule is not None and any(True for _ in module.buffers(recurse=False)):
            module.train(_trains(frozen_until[rule], epoch))


def most_specific_rule(name: str, module_names: Iterable[str]) -> str | None:
    """Return the longest of ``module_names`` that is ``name`` or a parent of it; None if there is
    none."""
    rules = [rule for rule in module_names if name == rule or name.startswith(rule + ".")]
    return max(rules, key=len, default=None)


def _trains(first_epoch: int | None, epoch: int) -> bool:
    return first_epoch is not None and epoch >= first_epoch


def build_optimizer(
    optimizer: Any,
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
    learning_rate: float,
) -> Optimizer:
    """Build an optimizer of ``torch.optim`` for parameters, or for groups of them."""
    built: Optimizer = registry.build(
        "torch.optim", optimizer, params=list(parameters), lr=learning_rate
    )
    return built


def parameter_groups(model: nn.Module, factors: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the parameters of ``model``, also frozen ones, in groups of one factor; the most
    specific name wins."""
    check_module_names(model, factors, "learning_rate_factors")
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        rule = most_specific_rule(name, factors)
        groups.setdefault(1.0 if rule is None else factors[rule], []).append(parameter)
    return [{"params": parameters, "factor": factor} for factor, parameters in groups.items()]


def limit_weight_decay(groups: Iterable[dict[str, Any]], optimizer: Any) -> list[dict[str, Any]]:
    """Return the groups such that weight decay changes only matrices, not biases, norms and scalars
    of a loss.

    He et al., "Bag of tricks for image classification", CVPR 2019, section 3.1, "no bias decay"; a
    temperature that decays would be pulled to 1.
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


def average_weights(model: nn.Module, decay: float) -> AveragedModel:
    """Return a copy of ``model``, in ``.module``; call ``update_parameters(model)`` on it after
    every step.

    w' <- d w' + (1 - d) w with d = min(decay, (1 + t) / (10 + t)) at step t: the random initial
    weights are forgotten whatever the decay, in [0, 1). Buffers (statistics of batch norm) are
    copied, not averaged.
    """

    def update(averages: Sequence[Tensor], weights: Sequence[Tensor], steps: Tensor | int) -> None:
        step = int(steps)
        torch._foreach_lerp_(
            list(averages), list(weights), 1 - min(decay, (1 + step) / (10 + step))
        )

    check_range("[0, 1)", ema_decay=decay)
    return AveragedModel(model, multi_avg_fn=update)
