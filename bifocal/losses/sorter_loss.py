"""What the rank losses share: a sorter inside a loss, and a plain loss beside it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import l1_loss

from bifocal import registry
from bifocal.scores import Scores, check_matches
from bifocal.sorters import exact_ranks


class Ranking(nn.Module):
    """A sorter as a part of a loss: the loss's gradient goes through it to the scores, never into its weights.

    With weights of its own to learn, it would learn to give the ranks that the loss wants. What it may learn instead
    is to sort the scores that really come, so that it follows their distribution (thesis 5.6).

    Args:
        sorter: scores (..., n) -> ranks (..., n).
        fine_tune: weight of the sorter's own L1 error on the scores, ranks divided by n; 0 leaves it as it is. The
            sorter's weights are parameters of the loss: give them to the optimizer.

    Raises:
        ValueError: fine-tuning of a sorter without weights.
    """

    def __init__(self, sorter: nn.Module, fine_tune: float) -> None:
        super().__init__()
        self.sorter = sorter
        self.fine_tune = fine_tune
        if fine_tune and not any(True for _ in self.sorter.parameters()):
            raise ValueError(f"fine_tune is {fine_tune}, but {type(self.sorter).__name__} has no weights: set it to 0")
        self.sorter.requires_grad_(bool(fine_tune))
        self.eval()

    def train(self, mode: bool = True) -> "Ranking":
        """Leaves the sorter in evaluation mode, so that one row's ranks do not depend on the others in the batch."""
        super().train(mode)
        self.sorter.eval()
        return self

    def forward(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Shape: scores (..., n) -> ranks (..., n), cost of the fine-tuning, a scalar."""
        frozen = {name: weight.detach() for name, weight in self.sorter.named_parameters()}
        ranks: Tensor = functional_call(self.sorter, frozen, scores)
        cost = ranks.new_zeros(())
        if self.fine_tune:
            known = scores.detach()
            cost = self.fine_tune * l1_loss(self.sorter(known), exact_ranks(known)) / scores.shape[-1]
        return ranks, cost


class AuxiliaryLoss(nn.Module):
    """A plain loss beside a rank loss, which keeps the scores where the sorter knows them (thesis 5.5).

    Args:
        loss: loss(scores, matches) -> scalar.
        weight: of the loss; 0 leaves it out.
        steps: training steps after which it is left out, to align the start alone; all if not given. The count is in
            the state of the module.
    """

    def __init__(self, loss: Callable[[Scores, Tensor], Tensor], weight: float, steps: int | None) -> None:
        super().__init__()
        self.loss, self.weight, self.steps = loss, weight, steps
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))
        self.steps_done: Tensor

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        """The weighted loss, or 0 when its steps are over."""
        over = self.weight == 0 or (self.steps is not None and int(self.steps_done) >= self.steps)
        if self.training and torch.is_grad_enabled():
            self.steps_done += 1
        return scores.cross.new_zeros(()) if over else self.weight * self.loss(scores, matches)


class RankLoss(nn.Module):
    """A loss on the ranks of each row: what SpearmanLoss and MeanAveragePrecisionLoss have in common.

    Args:
        sorter: scores (..., n) -> ranks (..., n); ``BifocalSorter(exact=...)`` if it is not given, as the loss says.
        fine_tune: weight of the L1 error of a trained sorter on these scores, see ``Ranking``.
        alignment_weight: of the plain loss beside it, see ``AuxiliaryLoss``; its unit is that of the plain loss.
        alignment_steps: training steps for which the plain loss is added; all if not given.

    Shape:
        scores.cross (rows, n), matches (rows, n) -> scalar.
    """

    plain: Callable[[], nn.Module]
    exact = True
    """Whether the ranks of the sorter that it has by itself are exact."""

    def __init__(
        self,
        sorter: nn.Module | None = None,
        fine_tune: float = 0.0,
        alignment_weight: float = 0.0,
        alignment_steps: int | None = None,
    ) -> None:
        super().__init__()
        if sorter is None:
            sorter = registry.build("bifocal.sorters", "BifocalSorter", exact=self.exact)
        self.ranking = Ranking(sorter, fine_tune)
        self.alignment = AuxiliaryLoss(self.plain(), alignment_weight, alignment_steps)

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        ranks, cost = self.ranking(scores.cross)
        total: Tensor = self.rank_cost(ranks, matches) + cost + self.alignment(scores, matches)
        return total

    def rank_cost(self, ranks: Tensor, matches: Tensor) -> Tensor:
        """Shape: ranks (rows, n), matches (rows, n) -> scalar."""
        raise NotImplementedError
