"""What is trained when, and how fast: stages, learning rates, optimisers, as data."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bifocal import registry

TrainFrom = Mapping[str, int | None]
"""``{"image_encoder.backbone": 8}``: from which epoch, from 0, a part of the model trains; None: never."""


def learning_rate_at(epoch: float, learning_rate: float, decay_after: Sequence[float], decay_factor: float) -> float:
    """The learning rate after ``epoch`` epochs: multiplied by ``decay_factor`` at each of ``decay_after``."""
    return float(learning_rate * decay_factor ** sum(epoch >= milestone for milestone in decay_after))


def build_optimizer(
    optimizer: Mapping[str, Any], parameters: Iterable[nn.Parameter], learning_rate: float
) -> Optimizer:
    """``{"name": "SGD", "momentum": 0.9}`` of ``torch.optim``.

    Raises:
        ValueError: ``torch.optim`` has no such class, or it takes no such argument.
    """
    name = optimizer["name"]
    arguments = {key: value for key, value in optimizer.items() if key != "name"}
    built: Optimizer = registry.build("torch.optim", name, params=list(parameters), lr=learning_rate, **arguments)
    return built


def check_parts(model: nn.Module, train_from: TrainFrom) -> None:
    """Raise ``ValueError`` if the model has no part of a name of ``train_from``."""
    known = {name for name, _ in model.named_modules() if name} | {name for name, _ in model.named_parameters()}
    for part in train_from:
        if part not in known:
            # Those beside it: all of a network's would fill the screen.
            parent = part.rpartition(".")[0]
            near = {name for name in known if name.rpartition(".")[0] == parent}
            near = near or {name for name, _ in model.named_children()}
            raise ValueError(f"train_from: the model has no {part!r}; {registry.suggest(part, near)}")


def set_stage(model: nn.Module, train_from: TrainFrom, epoch: int) -> None:
    """Put ``model`` in training mode, all but the parts whose epoch has not come; a part of a part overrules it.

    A part that waits does not move at all: no gradient reaches its parameters, and what moves without one (the
    statistics of batch normalisation) is in evaluation mode. Parts that ``train_from`` does not name are left as they
    are: what an encoder froze itself stays frozen.
    """
    model.train()
    for name, parameter in model.named_parameters():
        rule = _rule(name, train_from)
        if rule is not None:
            parameter.requires_grad_(_has_come(train_from[rule], epoch))
    for name, module in model.named_modules():
        rule = _rule(name, train_from)
        if rule is not None and any(True for _ in module.buffers(recurse=False)):
            module.train(_has_come(train_from[rule], epoch))


def _rule(name: str, train_from: TrainFrom) -> str | None:
    """The longest of the names that ``name`` is, or is a part of."""
    above = [part for part in train_from if name == part or name.startswith(part + ".")]
    return max(above, key=len, default=None)


def _has_come(first: int | None, epoch: int) -> bool:
    return first is not None and epoch >= first
