"""Several losses on one batch."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor, nn

from bifocal.scores import Scores


class WeightedSumLoss(nn.Module):
    """A weighted sum of losses, such as a ranking loss and the structure within the views.

    Args:
        losses: the terms. A YAML file names them: ``[{name: InfoNCELoss, temperature: 0.07}, {name: ...}]``.
        weights: one for each; 1 if not given.

    Shape:
        what the losses take -> scalar.

    Raises:
        ValueError: no loss, or not as many weights as losses.
    """

    parts: ClassVar[Mapping[str, str]] = {"losses": "bifocal.losses"}

    def __init__(self, losses: Sequence[nn.Module], weights: list[float] | None = None) -> None:
        super().__init__()
        self.weights: Sequence[float] = [1.0] * len(losses) if weights is None else weights
        if not losses or len(self.weights) != len(losses):
            raise ValueError(
                f"WeightedSumLoss got {len(losses)} losses and {len(self.weights)} weights: give as many of each"
            )
        self.losses = nn.ModuleList(losses)

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        terms = [weight * loss(scores, matches) for weight, loss in zip(self.weights, self.losses, strict=True)]
        total: Tensor = sum(terms[1:], start=terms[0])
        return total
