"""Several losses on one batch."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from bifocal.registry import build, find
from bifocal.scores import Scores


class WeightedSumLoss(nn.Module):
    """A weighted sum of losses, such as a ranking loss and the structure within the views.

    Args:
        losses: of this package, by name and arguments: ``[{name: InfoNCELoss, temperature: 0.07}, {name: ...}]``.
        weights: one for each; 1 if not given.
        sorter: for those that take one; none: their own default.

    Shape:
        what the losses take -> scalar.

    Raises:
        ValueError: no loss, not as many weights as losses, or a loss or an argument that does not exist.
    """

    parts: ClassVar[Mapping[str, str]] = {"losses": "bifocal.losses"}

    def __init__(
        self,
        losses: list[dict[str, Any]],
        weights: list[float] | None = None,
        sorter: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.weights: Sequence[float] = [1.0] * len(losses) if weights is None else weights
        if not losses or len(self.weights) != len(losses):
            raise ValueError(
                f"WeightedSumLoss got {len(losses)} losses and {len(self.weights)} weights: give as many of each"
            )
        self.losses = nn.ModuleList(_term(part, sorter) for part in losses)

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        terms = [weight * loss(scores, matches) for weight, loss in zip(self.weights, self.losses, strict=True)]
        total: Tensor = sum(terms[1:], start=terms[0])
        return total


def _term(part: Mapping[str, Any], sorter: nn.Module | None) -> nn.Module:
    takes_sorter = "sorter" in inspect.signature(find("bifocal.losses", part["name"])).parameters
    given: dict[str, Any] = {"sorter": sorter} if takes_sorter else {}
    term: nn.Module = build("bifocal.losses", **part, **given)
    return term
