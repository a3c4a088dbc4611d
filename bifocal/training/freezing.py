"""Freezing: which modules of a model train from which epoch on."""

from collections.abc import Iterable, Mapping

from torch import nn

from bifocal import registry

FreezeSchedule = Mapping[str, int | None]
"""``{"image_encoder.backbone": 8}``: a module or parameter is frozen until this epoch, from 0; None: always."""


def check_module_names(model: nn.Module, names: Iterable[str], argument: str = "frozen_until") -> None:
    """Raise ``ValueError`` if ``argument`` names a module or parameter that the model lacks."""
    known = {name for name, _ in model.named_modules() if name} | {name for name, _ in model.named_parameters()}
    for name in names:
        if name not in known:
            # List only the siblings: all names of a backbone would fill the screen.
            parent = name.rpartition(".")[0]
            siblings = {other for other in known if other.rpartition(".")[0] == parent}
            siblings = siblings or {child for child, _ in model.named_children()}
            raise ValueError(f"{argument}: the model has no {name!r}; {registry.suggest(name, siblings)}")


def apply_freezing(model: nn.Module, frozen_until: FreezeSchedule, epoch: int) -> None:
    """Set ``model`` to training mode, and freeze the modules whose epoch has not come.

    The most specific name wins. A frozen module does not change at all: its parameters get no gradient, and its buffers
    (the statistics of batch norm) stay in evaluation mode. Other modules keep their ``requires_grad``.
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
    """Return the longest of ``module_names`` that is ``name`` or a parent of it; None if there is none."""
    rules = [rule for rule in module_names if name == rule or name.startswith(rule + ".")]
    return max(rules, key=len, default=None)


def _trains(first_epoch: int | None, epoch: int) -> bool:
    return first_epoch is not None and epoch >= first_epoch
