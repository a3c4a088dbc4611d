"""Cross-modal retrieval of images and captions: R@K, median and mean rank of both directions, with
intervals."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from bifocal.metrics.bootstrap import bootstrap_means, bootstrap_medians, percentile_interval
from bifocal.metrics.retrieval.blockwise_ranks import Biases, score_ranks
from bifocal.metrics.retrieval.ranks import Ranks

DIRECTIONS = ("caption_retrieval", "image_retrieval")
Interval = dict[str, float]


def retrieval_ranks(
    images: Tensor,
    captions: Tensor,
    image_of_caption: Tensor,
    *,
    rerank: bool = False,
    biases: Biases | None = None,
) -> tuple[Ranks, Ranks]:
    """Return the ranks of caption retrieval (one query per image) and of image retrieval (one per
    caption).

    Each block of scores is computed once and counted for both directions; memory never holds the
    whole matrix.

    Args:
        image_of_caption: row in ``images`` of each caption's image.
        rerank: normalize the scores by thesis eq. (3.12)-(3.13).
        biases: added to the scores of each candidate, see ``bifocal.hubness``.

    Shape:
        images (N, d), captions (M, d), image_of_caption (M,) int64.

    Raises:
        ValueError: a score is NaN, or an image has no caption.
    """

    def scores(rows: Tensor, columns: Tensor) -> Tensor:
        # Successive blocks share their captions: gather them once.
        if gathered.get("columns") is not columns:
            gathered["columns"], gathered["captions"] = columns, _rows(captions, columns)
        return _rows(images, rows) @ gathered["captions"].T

    gathered: dict[str, Tensor] = {}
    return score_ranks(scores, image_of_caption, images=len(images), rerank=rerank, biases=biases)


def summarize(ranks: tuple[Ranks, Ranks], ks: Iterable[int]) -> dict[str, dict[str, float]]:
    """Return R@K in percent, median and mean rank from 1, of both directions.

    Args:
        ranks: (caption retrieval, image retrieval), as from ``retrieval_ranks``.

    Returns:
        ``{"caption_retrieval": {"R@1": ..., "median_rank": ..., "mean_rank": ...},
        "image_retrieval": {...}}``
    """
    ks = list(ks)
    return {
        direction: {f"R@{k}": 100 * queries.recall(k) for k in ks}
        | {"median_rank": queries.median(), "mean_rank": queries.mean()}
        for direction, queries in zip(DIRECTIONS, ranks, strict=True)
    }


def chance_report(image_of_caption: Tensor, ks: Iterable[int]) -> dict[str, dict[str, float]]:
    """Return the expected metrics of random scores, in the form of ``summarize``.

    Shape:
        image_of_caption (M,) int64, each of N images at least once.
    """
    return summarize(chance_ranks(image_of_caption), ks)


def chance_ranks(image_of_caption: Tensor) -> tuple[Ranks, Ranks]:
    """Return the ranks of equal scores, (caption retrieval, image retrieval): every candidate is
    tied."""
    captions = image_of_caption.bincount()
    one = torch.ones_like(image_of_caption)
    return (
        Ranks(better=0 * captions, tied=len(image_of_caption) - captions, correct=captions),
        Ranks(better=0 * one, tied=(len(captions) - 1) * one, correct=one),
    )


def _rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return ``matrix[rows]``, without a copy if the rows are successive."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows) and (rows.diff() == 1).all():
        return matrix[first : last + 1]
    return matrix[rows]


def retrieval_intervals(
    ranks: tuple[Ranks, Ranks],
    image_of_caption: Tensor,
    ks: Iterable[int],
    *,
    resamples: int,
    seed: int = 0,
) -> dict[str, dict[str, Interval]]:
    """Return 95 % intervals for the metrics of ``summarize`` and ``recall_sum``, the sum of all
    R@K.

    Each resample draws as many images as there are, with their captions, and keeps the rank of
    every query: drawing the candidates anew would rank a query among copies of its answer.

    Args:
        ranks: (caption retrieval, image retrieval).
        image_of_caption: image query of each caption query.

    Returns:
        ``{"caption_retrieval": {"R@1": {"low": ..., "high": ...}, ...}, "image_retrieval": ...,
        "recall_sum": {"total": {"low": ..., "high": ...}}}``, in the units of ``summarize``.
    """
    images = len(ranks[0].better)
    groups = (torch.arange(images), image_of_caption.cpu())
    report: dict[str, dict[str, Interval]] = {}
    recall_sum = torch.zeros(resamples, dtype=torch.float64)
    for direction, queries, group in zip(DIRECTIONS, ranks, groups, strict=True):
        columns = {f"R@{k}": 100 * queries.hits(k) for k in ks} | {
            "mean_rank": queries.expected() + 1
        }
        values = torch.stack(list(columns.values()), dim=1)
        totals = torch.zeros(images, len(columns), dtype=torch.float64).index_add_(0, group, values)
        counts = group.bincount(minlength=images).unsqueeze(1).expand_as(totals)
        means = dict(zip(columns, bootstrap_means(totals, counts, resamples, seed).T, strict=True))
        recall_sum += sum(resampled for name, resampled in means.items() if name.startswith("R@"))
        means["median_rank"] = bootstrap_medians(queries.expected() + 1, group, resamples, seed)
        report[direction] = {name: _bounds(resampled) for name, resampled in means.items()}
    return report | {"recall_sum": {"total": _bounds(recall_sum)}}


def recall_sum_gain(
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    image_of_caption: Tensor,
    ks: Sequence[int],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the 95 % interval of the recall sum of one model minus that of another, over resampled
    images, in percent.

    Args:
        first: expected ranks of caption retrieval, one per image, and of image retrieval, one per
            caption, from 0.
        second: as ``first``.
    """
    images = len(first[0])
    gains, counts = [], []
    for ours, theirs, group in zip(
        first, second, (torch.arange(images), image_of_caption.cpu()), strict=True
    ):
        for k in ks:
            gain = 100 * ((ours < k).double() - (theirs < k).double())
            gains.append(torch.zeros(images, dtype=torch.float64).index_add_(0, group, gain))
            counts.append(group.bincount(minlength=images))
    resampled = bootstrap_means(
        torch.stack(gains, dim=1), torch.stack(counts, dim=1), resamples, seed
    )
    return percentile_interval(resampled.nan_to_num(0.0).sum(dim=1))


def _bounds(resampled: Tensor) -> Interval:
    low, high = percentile_interval(resampled)
    return {"low": low, "high": high}
