"""What every sorter shares: which scores it takes, and the true ranks that it approximates."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from bifocal.sorters.order import sort_rows


def check_scores(scores: Tensor) -> Tensor:
    """The scores as a sorter computes with them: float32 at least, for float16 skips whole numbers above 2,048.

    Shape:
        scores (..., n), n >= 1, any floating type -> (..., n), float32 or float64.

    Raises:
        TypeError: the scores are no floating-point numbers.
        ValueError: there is no score, or one that is not finite and so has no place in an order.
    """
    if not scores.is_floating_point():
        raise TypeError(f"a sorter takes floating-point scores, not {scores.dtype}: convert them first")
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise ValueError(f"scores {tuple(scores.shape)} hold nothing to rank: expected (..., n) with n >= 1")
    values = scores.detach()
    # A sum takes one pass and no memory; only when it is not finite is every score looked at.
    if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
        count = int((~torch.isfinite(values)).sum())
        raise ValueError(
            f"{count} of the {scores.numel()} scores are NaN or infinite and have no rank: "
            "look for a division by zero or a diverged model, or leave those scores out"
        )
    return scores if scores.dtype in (torch.float32, torch.float64) else scores.float()


def exact_ranks(scores: Tensor) -> Tensor:
    """Ranks by counting, rk of the thesis (5.3.1): 0 = best = highest score.

    The rule for ties: equal scores share the mean of the ranks that they fill together, so the ranks of a vector always
    add up to n (n - 1) / 2 and depend on nothing but the scores.

    Shape:
        scores (..., n) -> (..., n), float32 or float64; no gradient.
    """
    rows = check_scores(scores.detach()).reshape(-1, scores.shape[-1])
    ordered, order = sort_rows(rows)
    return torch.empty_like(ordered).scatter_(-1, order, ranks_of_ordered(ordered)).reshape(scores.shape)


def ranks_of_ordered(ordered: Tensor) -> Tensor:
    """Exact ranks of scores in ascending order, the rule for ties as in ``exact_ranks``.

    Shape:
        ordered (rows, n) -> (rows, n).
    """
    n = ordered.shape[-1]
    places = torch.arange(n, device=ordered.device)
    ranks = (n - 1 - places).to(ordered.dtype).expand_as(ordered)
    if n == 1:
        return ranks
    tied = (ordered[:, 1:] - ordered[:, :-1]).amin(dim=-1) == 0
    if tied.any():
        ranks = ranks.clone()
        ranks[tied] = _shared_ranks(ordered[tied], places)
    return ranks


def _shared_ranks(ordered: Tensor, places: Tensor) -> Tensor:
    differs = ordered[:, 1:] != ordered[:, :-1]
    first = torch.where(pad(differs, (1, 0), value=True), places, 0).cummax(dim=-1).values
    last = torch.where(pad(differs, (0, 1), value=True), places, len(places) - 1)
    last = last.flip(-1).cummin(dim=-1).values.flip(-1)
    return len(places) - 1 - (first + last).to(ordered.dtype) / 2
