"""Base of the losses on ranks: a sorter, and an auxiliary loss on scores."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import l1_loss

from bifocal import registry
from bifocal.scores import Scores, check_matches
from bifocal.sorters import exact_ranks


class SorterRanks(nn.Module):
    """Ranks of a sorter and the scalar cost of its fine-tuning; the loss never trains the sorter's
    weights.

    Else the sorter would learn to return low losses. With ``fine_tune``, it keeps learning to sort
    the model's scores (thesis, section 5.6); its weights are parameters of the loss.
    """

    def __init__(self, sorter: nn.Module, fine_tune: float) -> None:
        super().__init__()
        self.sorter = sorter
        self.fine_tune = fine_tune
        if fine_tune and not any(True for _ in self.sorter.parameters()):
            raise ValueError(
                f"fine_tune is {fine_tune}, but {type(self.sorter).__name__} has no weights: "
                "set it to 0"
            )
        self.sorter.requires_grad_(bool(fine_tune))
        self.eval()

    def train(self, mode: bool = True) -> "SorterRanks":
        """Set the mode, but keep the sorter in evaluation mode: the ranks of a row must not depend
        on other rows."""
        super().train(mode)
        self.sorter.eval()
        return self

    def forward(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        frozen = {name: weight.detach() for name, weight in self.sorter.named_parameters()}
        ranks: Tensor = functional_call(self.sorter, frozen, scores)
        cost = ranks.new_zeros(())
        if self.fine_tune:
            values = scores.detach()
            cost = (
                self.fine_tune
                * l1_loss(self.sorter(values), exact_ranks(values))
                / scores.shape[-1]
            )
        return ranks, cost


class AuxiliaryLoss(nn.Module):
    """Loss on scores that keeps them in the sorter's range (thesis, section 5.5); 0 after ``steps``
    training steps."""

    def __init__(
        self, loss: Callable[[Scores, Tensor], Tensor], weight: float, steps: int | None
    ) -> None:
        super().__init__()
        self.loss, self.weight, self.steps = loss, weight, steps
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))
        self.steps_done: Tensor

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        disabled = self.weight == 0 or (
            self.steps is not None and int(self.steps_done) >= self.steps
        )
        if self.training and torch.is_grad_enabled():
            self.steps_done += 1
        return scores.cross.new_zeros(()) if disabled else self.weight * self.loss(scores, matches)


class SorterLoss(nn.Module, ABC):
    """Loss on ranks: base of ``RowRankLoss`` and ``RecallLoss``.

    Args:
        sorter: scores (..., n) -> ranks (..., n); None for a ``ExactRankSorter`` with the ``exact``
            of the class.
        fine_tune: weight of the L1 error of a pretrained sorter on the model's scores, see
            ``SorterRanks``.
        auxiliary_weight: weight of the class's auxiliary loss on scores, see ``AuxiliaryLoss``.
        auxiliary_steps: training steps during which the auxiliary loss is added; None for all.

    Shape:
        scores.cross (rows, n), matches (rows, n) -> scalar.
    """

    auxiliary: Callable[[], nn.Module]
    exact = True
    """Whether the default sorter returns exact ranks."""

    def __init__(
        self,
        sorter: nn.Module | None = None,
        fine_tune: float = 0.0,
        auxiliary_weight: float = 0.0,
        auxiliary_steps: int | None = None,
    ) -> None:
        super().__init__()
        if sorter is None:
            sorter = registry.build("bifocal.sorters", "ExactRankSorter", exact=self.exact)
        self.sorter_ranks = SorterRanks(sorter, fine_tune)
        self.auxiliary_loss = AuxiliaryLoss(self.auxiliary(), auxiliary_weight, auxiliary_steps)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        if arguments.get("auxiliary_steps") is not None and not arguments.get("auxiliary_weight"):
            yield (
                f"auxiliary_steps is {arguments['auxiliary_steps']}, but the auxiliary loss is "
                "disabled: set auxiliary_weight too, or leave auxiliary_steps out"
            )

    @abstractmethod
    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        """Return the loss."""


class RowRankLoss(SorterLoss):
    """Loss on the ranks of each row: base of ``SpearmanLoss`` and ``MeanAveragePrecisionLoss``."""

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        ranks, cost = self.sorter_ranks(scores.cross)
        total: Tensor = self.rank_cost(ranks, matches) + cost + self.auxiliary_loss(scores, matches)
        return total

    @abstractmethod
    def rank_cost(self, ranks: Tensor, matches: Tensor) -> Tensor:
        """Return the scalar cost of the ranks (rows, n)."""
