"""Cross-modal retrieval of embedded images and captions: R@K, median and mean rank, both directions."""

from collections.abc import Iterable

import torch
from torch import Tensor

from bifocal.metrics.retrieval.blockwise_ranks import score_ranks
from bifocal.metrics.retrieval.ranks import Ranks

DIRECTIONS = ("caption_retrieval", "image_retrieval")


def retrieval_ranks(
    images: Tensor, captions: Tensor, image_of_caption: Tensor, *, rerank: bool = False
) -> tuple[Ranks, Ranks]:
    """Ranks of caption retrieval (one query per image) and of image retrieval (one per caption).

    Blocks are multiplied once and counted for both directions; the matrix of all scores never stands in memory.

    Args:
        image_of_caption: row in ``images`` of each caption's image.
        rerank: normalise the scores by thesis eq. (3.12)-(3.13).

    Shape:
        images (N, d), captions (M, d), image_of_caption (M,) int64.

    Raises:
        ValueError: a score is NaN, or an image has no caption.
    """

    def scores(rows: Tensor, columns: Tensor) -> Tensor:
        # One block of captions meets all images: gather it once.
        if gathered.get("columns") is not columns:
            gathered["columns"], gathered["captions"] = columns, _rows(captions, columns)
        return _rows(images, rows) @ gathered["captions"].T

    gathered: dict[str, Tensor] = {}
    return score_ranks(scores, image_of_caption, images=len(images), rerank=rerank)


def summarize(both: tuple[Ranks, Ranks], ks: Iterable[int]) -> dict[str, dict[str, float]]:
    """R@K in percent, median and mean rank from 1, of what ``retrieval_ranks`` found.

    Returns:
        ``{"caption_retrieval": {"R@1": ..., "median_rank": ..., "mean_rank": ...}, "image_retrieval": {...}}``
    """
    ks = list(ks)
    return {
        direction: {f"R@{k}": 100 * found.recall(k) for k in ks}
        | {"median_rank": found.median(), "mean_rank": found.mean()}
        for direction, found in zip(DIRECTIONS, both, strict=True)
    }


def chance_report(image_of_caption: Tensor, ks: Iterable[int]) -> dict[str, dict[str, float]]:
    """What random scores would give, in expectation: every candidate is tied.

    Shape:
        image_of_caption (M,) int64, each of N images at least once.
    """
    return summarize(chance_ranks(image_of_caption), ks)


def chance_ranks(image_of_caption: Tensor) -> tuple[Ranks, Ranks]:
    """Ranks of scores that are all the same; as above."""
    captions = image_of_caption.bincount()
    one = torch.ones_like(image_of_caption)
    return (
        Ranks(above=0 * captions, tied=len(image_of_caption) - captions, correct=captions),
        Ranks(above=0 * one, tied=(len(captions) - 1) * one, correct=one),
    )


def _rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """``matrix[rows]``, without a copy where the rows follow each other."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows) and (rows.diff() == 1).all():
        return matrix[first : last + 1]
    return matrix[rows]
