"""Weighted sum of losses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from bifocal.scores import Scores


class WeightedSumLoss(nn.Module):
    """Weighted sum of losses on the same scores.

    Args:
        losses: modules ``loss(scores, matches) -> scalar``; by name, references to parts of
            ``bifocal.losses``.
        weights: one per loss; None for 1 each.

    Shape:
        the shapes of ``losses`` -> scalar.

    Raises:
        ValueError: no loss is given, or the numbers of weights and losses differ.

    Example:
        >>> import torch
        >>> from bifocal.losses import HardestTripletLoss
        >>> loss = WeightedSumLoss(
        ...     [HardestTripletLoss(margin=0.2), HardestTripletLoss(margin=0.4)], weights=[1.0, 0.5]
        ... )
        >>> round(
        ...     loss(Scores(torch.zeros(2, 2)), torch.eye(2, dtype=torch.bool)).item(), 2
        ... )  # 2 (0.2 + 0.5 * 0.4)
        0.8
    """

    parts: ClassVar[Mapping[str, str]] = {"losses": "bifocal.losses"}

    def __init__(self, losses: Sequence[nn.Module], weights: list[float] | None = None) -> None:
        super().__init__()
        self.weights = [1.0] * len(losses) if weights is None else weights
        if not losses or len(self.weights) != len(losses):
            raise ValueError(_mismatch(losses, self.weights))
        self.losses = nn.ModuleList(losses)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        losses = arguments.get("losses", [])
        weights = arguments.get("weights")
        if not losses or (weights is not None and len(weights) != len(losses)):
            yield _mismatch(losses, weights or [])

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        terms = [
            weight * loss(scores, matches)
            for weight, loss in zip(self.weights, self.losses, strict=True)
        ]
        total: Tensor = sum(terms[1:], start=terms[0])
        return total


def _mismatch(losses: Sequence[Any], weights: Sequence[float]) -> str:
    return (
        f"WeightedSumLoss got {len(losses)} losses and {len(weights)} weights: give as many of each"
    )
