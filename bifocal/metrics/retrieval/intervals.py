"""Confidence intervals of retrieval metrics, by a bootstrap over images."""

from collections.abc import Iterable

import torch
from torch import Tensor

from bifocal.metrics.bootstrap import bootstrap_means, bootstrap_medians, percentile_interval
from bifocal.metrics.retrieval.ranks import Ranks
from bifocal.metrics.retrieval.recall import DIRECTIONS

Interval = dict[str, float]


def retrieval_intervals(
    ranks: tuple[Ranks, Ranks],
    image_of_caption: Tensor,
    ks: Iterable[int],
    *,
    resamples: int,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, Interval]]:
    """Return intervals for the metrics of ``summarize`` and for ``recall_sum``, the sum of all R@K.

    Each resample draws as many images as there are, with their captions, and keeps the rank of every query: drawing
    the candidates anew would rank a query among copies of its answer.

    Args:
        ranks: (caption retrieval, image retrieval).
        image_of_caption: image query of each caption query.
        level: confidence, in (0, 1).

    Returns:
        ``{"caption_retrieval": {"R@1": {"low": ..., "high": ...}, ...}, "image_retrieval": ...,
        "recall_sum": {"total": {"low": ..., "high": ...}}}``, in the units of ``summarize``.
    """
    images = len(ranks[0].better)
    groups = (torch.arange(images), image_of_caption.cpu())
    report: dict[str, dict[str, Interval]] = {}
    recall_sum = torch.zeros(resamples, dtype=torch.float64)
    for direction, queries, group in zip(DIRECTIONS, ranks, groups, strict=True):
        columns = {f"R@{k}": 100 * queries.hits(k) for k in ks} | {"mean_rank": queries.expected() + 1}
        values = torch.stack(list(columns.values()), dim=1)
        totals = torch.zeros(images, len(columns), dtype=torch.float64).index_add_(0, group, values)
        counts = group.bincount(minlength=images).unsqueeze(1).expand_as(totals)
        means = dict(zip(columns, bootstrap_means(totals, counts, resamples, seed).T, strict=True))
        recall_sum += sum(resampled for name, resampled in means.items() if name.startswith("R@"))
        means["median_rank"] = bootstrap_medians(queries.expected() + 1, group, resamples, seed)
        report[direction] = {name: _bounds(resampled, level) for name, resampled in means.items()}
    return report | {"recall_sum": {"total": _bounds(recall_sum, level)}}


def _bounds(resampled: Tensor, level: float) -> Interval:
    low, high = percentile_interval(resampled, level)
    return {"low": low, "high": high}
