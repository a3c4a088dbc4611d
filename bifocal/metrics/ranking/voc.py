"""Interpolated average precision of PASCAL VOC.

Everingham et al., "The PASCAL visual object classes (VOC) challenge", IJCV 2010, section 4.2.
"""

from typing import Literal

import torch
from torch import Tensor


def voc_average_precision(scores: Tensor, matches: Tensor, rule: Literal["11 points", "all points"]) -> float:
    """Return the average, in [0, 1], of the best precision at a recall or beyond.

    "11 points" (VOC 2007) averages at recalls 0, 0.1 ... 1; "all points" (VOC 2010 and later) is the area under the
    interpolated curve. Tied elements are added together, so the order of the rows does not matter.

    Shape:
        scores (n,), matches (n,) bool

    Returns:
        NaN if nothing matches.

    Raises:
        ValueError: the shapes differ, a score is NaN, or the rule is unknown.

    Example:
        >>> scores, matches = torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True])
        >>> round(voc_average_precision(scores, matches, "11 points"), 4)
        0.8485
    """
    if scores.ndim != 1 or scores.shape != matches.shape:
        raise ValueError(f"scores {tuple(scores.shape)} and matches {tuple(matches.shape)}: expected (n,) of both")
    if scores.isnan().any():
        raise ValueError(f"{int(scores.isnan().sum())} of {len(scores)} scores are NaN and have no rank")
    if rule not in ("11 points", "all points"):
        raise ValueError(f"no rule {rule!r}; there are '11 points' and 'all points'")
    if not matches.any():
        return float("nan")
    values, order = scores.sort(descending=True)
    correct = matches[order].double().cumsum(0)
    # Read precision and recall only where a tie ends.
    ends = torch.cat([values[1:] != values[:-1], torch.tensor([True])])
    precision = (correct / torch.arange(1, len(correct) + 1))[ends]
    recall = (correct / correct[-1])[ends]
    best = precision.flip(0).cummax(0).values.flip(0)
    if rule == "11 points":
        # 0.1 * 3 is not 0.3 in floating point: compare in tenths.
        reached = [best[recall * 10 >= tenth - 1e-9] for tenth in range(11)]
        return sum(float(rest[0]) for rest in reached) / 11
    return float((recall.diff(prepend=recall.new_zeros(1)) * best).sum())
