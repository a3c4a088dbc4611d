"""Exact ranks, which sorters approximate, the check of their inputs, and the base of trained
sorters."""

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


def check_scores(scores: Tensor) -> Tensor:
    """Check scores (..., n) and return them as float32 or float64: float16 cannot represent all
    ranks above 2,048."""
    if not scores.is_floating_point():
        raise TypeError(
            f"a sorter needs floating-point scores, got {scores.dtype}: convert them first"
        )
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise ValueError(f"scores {tuple(scores.shape)} are empty: expected (..., n) with n >= 1")
    values = scores.detach()
    # The sum takes one pass and no memory; look at every score only if it is not finite.
    if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
        count = int((~torch.isfinite(values)).sum())
        raise ValueError(
            f"{count} of the {scores.numel()} scores are NaN or infinite and have no rank: "
            "look for a division by zero or a diverged model, or drop those scores"
        )
    return scores if scores.dtype in (torch.float32, torch.float64) else scores.float()


def exact_ranks(scores: Tensor) -> Tensor:
    """Return ranks by counting, rk of thesis 5.3.1: 0 = best = highest score.

    Tied scores share the mean of the ranks that they occupy, so the ranks of a vector always sum to
    n (n - 1) / 2.

    Shape:
        scores (..., n) -> (..., n), float32 or float64; no gradient.

    Example:
        >>> exact_ranks(torch.tensor([0.1, 0.9, 0.5, 0.5]))
        tensor([3.0000, 0.0000, 1.5000, 1.5000])
    """
    rows = check_scores(scores.detach()).reshape(-1, scores.shape[-1])
    ordered, order = sort_rows(rows)
    return (
        torch.empty_like(ordered)
        .scatter_(-1, order, ranks_of_ordered(ordered))
        .reshape(scores.shape)
    )


def ranks_of_ordered(ordered: Tensor) -> Tensor:
    """Return the exact ranks of scores (rows, n) in ascending order; ties as in ``exact_ranks``."""
    n = ordered.shape[-1]
    indices = torch.arange(n, device=ordered.device)
    ranks = (n - 1 - indices).to(ordered.dtype).expand_as(ordered)
    if n == 1:
        return ranks
    tied = (ordered[:, 1:] - ordered[:, :-1]).amin(dim=-1) == 0
    if tied.any():
        ranks = ranks.clone()
        ranks[tied] = _shared_ranks(ordered[tied], indices)
    return ranks


def _shared_ranks(ordered: Tensor, indices: Tensor) -> Tensor:
    differs = ordered[:, 1:] != ordered[:, :-1]
    first = torch.where(pad(differs, (1, 0), value=True), indices, 0).cummax(dim=-1).values
    last = torch.where(pad(differs, (0, 1), value=True), indices, len(indices) - 1)
    last = last.flip(-1).cummin(dim=-1).values.flip(-1)
    return len(indices) - 1 - (first + last).to(ordered.dtype) / 2


def sort_rows(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores (rows, n) of every row in ascending order, and their indices in the row."""
    if scores.device.type != "cpu" or scores.dtype != torch.float32:
        ordered, order = scores.sort(dim=-1)
        return ordered, order
    # Pack a float32 and its index into one int64 with the same order: NumPy sorts integers with
    # vector instructions, several times faster than torch sorts values with indices.
    bits = scores.contiguous().view(torch.int32)
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32
    keys |= torch.arange(scores.shape[-1])
    keys.numpy().sort(axis=-1)
    order = keys & 0xFFFFFFFF
    return scores.gather(-1, order), order


class TrainedSorter(nn.Module, ABC):
    """Sorter by a network. It must be trained, see ``bifocal.training.pretraining.sorter``, and is
    not permutation-equivariant.

    Args:
        length: maximum number of scores per vector.
        shortest: minimum number of scores per vector; ``length`` by default.

    Raises:
        ValueError: ``shortest`` is not in [1, length], or a vector has a length outside [shortest,
            length].
    """

    def __init__(self, length: int, shortest: int | None = None) -> None:
        super().__init__()
        self.length, self.shortest = length, length if shortest is None else shortest
        if not 1 <= self.shortest <= length:
            raise ValueError(
                f"shortest is {shortest} and length {length}: expected 1 <= shortest <= length"
            )

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all modules but LSTMs: cuDNN has no backward pass in evaluation mode, and
        without dropout both modes compute the same."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.LSTM):
                module.train()
        return self

    @abstractmethod
    def fractions(self, rows: Tensor) -> Tensor:
        """Return the ranks of rows (B, n) as fractions of n, the unit of thesis table 5.1."""

    def forward(self, scores: Tensor) -> Tensor:
        scores = check_scores(scores).to(next(self.parameters()).dtype)
        shortest, length, found = self.shortest, self.length, scores.shape[-1]
        if not shortest <= found <= length:
            trained_on = f"{length}" if shortest == length else f"{shortest} to {length}"
            raise ValueError(
                f"this {type(self).__name__} ranks {trained_on} scores, not {found}: train one "
                f"with length {found}, or use a sorter that accepts any length"
            )
        return self.fractions(scores.reshape(-1, found)).reshape(scores.shape) * found
