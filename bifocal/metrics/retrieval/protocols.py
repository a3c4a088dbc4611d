"""Protocols of cross-modal retrieval: Karpathy and Fei-Fei, CVPR 2015; Faghri et al., "VSE++", BMVC
2018.

COCO's 5,000 test images together or in folds of 1,000, Flickr30k's 1,000; the first five captions
of an image.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bifocal.metrics.retrieval.blockwise_ranks import Biases, BlockScores, score_ranks
from bifocal.metrics.retrieval.precision import caption_precision
from bifocal.metrics.retrieval.ranks import Ranks
from bifocal.metrics.retrieval.recall import retrieval_ranks, summarize

FoldRanks = tuple[Ranks, Ranks]
"""Ranks of (caption retrieval, image retrieval)."""


@dataclass(frozen=True)
class Protocol:
    """Size and number of the folds of a split.

    Attributes:
        fold: images that are ranked together; None for all.
        folds: number of folds, in the order of the split; metrics are averaged over them.
        captions: captions per image, the first ones; None for all.
        images: images of the split, of which the folds are the first; None if the folds are the
            whole split.
    """

    fold: int | None = None
    folds: int = 1
    captions: int | None = None
    images: int | None = None


PROTOCOLS = {
    "full": Protocol(),
    "coco_5fold_1k": Protocol(fold=1000, folds=5, captions=5),
    "coco_5k": Protocol(fold=5000, captions=5),
    "coco_1k": Protocol(fold=1000, captions=5, images=5000),
    "flickr_1k": Protocol(fold=1000, captions=5),
}


@dataclass(frozen=True)
class Fold:
    """Image rows that are ranked together, their caption rows, and the index of each caption's
    image."""

    images: Tensor
    captions: Tensor
    image_of_caption: Tensor


def split_folds(protocol: Protocol, image_of_caption: Tensor, images: int) -> list[Fold]:
    """Return the folds of a split.

    Args:
        image_of_caption: row of each caption's image, the captions in the split's order.
        images: number of images of the split.

    Shape:
        image_of_caption (M,) int64.

    Raises:
        ValueError: the split does not have the protocol's number of images, or an image has too few
            captions.
    """
    size = images if protocol.fold is None else protocol.fold
    expected = protocol.images or size * protocol.folds
    if images != expected:
        source = f" of {protocol.images}" if protocol.images else ""
        raise ValueError(
            f"the protocol ranks {protocol.folds} x {size} images{source} and the split has "
            f"{images}: choose the protocol 'full', or the split that the protocol is for"
        )
    kept = torch.arange(len(image_of_caption))
    if protocol.captions is not None:
        counts = image_of_caption.bincount(minlength=images)
        if (counts < protocol.captions).any():
            raise ValueError(
                f"the protocol takes {protocol.captions} captions of each image, and "
                f"{int((counts < protocol.captions).sum())} images have fewer: choose the "
                "protocol 'full'"
            )
        order = image_of_caption.argsort(stable=True)
        number = torch.arange(len(order)) - (counts.cumsum(0) - counts)[image_of_caption[order]]
        kept = order[number < protocol.captions].sort().values
    folds = []
    for first in range(0, size * protocol.folds, size):
        image = image_of_caption[kept]
        captions = kept[(image >= first) & (image < first + size)]
        folds.append(
            Fold(torch.arange(first, first + size), captions, image_of_caption[captions] - first)
        )
    return folds


def protocol_ranks(
    folds: Iterable[Fold],
    images: Tensor,
    captions: Tensor,
    *,
    rerank: bool = False,
    biases: Biases | None = None,
) -> list[FoldRanks]:
    """Return ``retrieval_ranks`` of each fold.

    Shape:
        images (N, d), captions (M, d), biases (N,) and (M,).
    """
    return [
        retrieval_ranks(
            images[fold.images],
            captions[fold.captions],
            fold.image_of_caption,
            rerank=rerank,
            biases=None if biases is None else (biases[0][fold.images], biases[1][fold.captions]),
        )
        for fold in folds
    ]


def protocol_score_ranks(
    folds: Iterable[Fold], scores: BlockScores, *, rerank: bool = False
) -> list[FoldRanks]:
    """Return ``score_ranks`` per fold, for a model that returns blocks of scores instead of
    vectors."""

    return [
        score_ranks(
            _fold_scores(fold, scores),
            fold.image_of_caption,
            images=len(fold.images),
            rerank=rerank,
        )
        for fold in folds
    ]


def protocol_precision(folds: Iterable[Fold], scores: BlockScores) -> Tensor:
    """Return R-Precision and AP@R of caption retrieval for the images of all folds (N, 2)."""
    return torch.cat(
        [
            caption_precision(_fold_scores(fold, scores), fold.image_of_caption, len(fold.images))
            for fold in folds
        ]
    )


def summarize_folds(ranks: Sequence[FoldRanks], ks: Iterable[int]) -> dict[str, dict[str, float]]:
    """Return the mean over the folds of the metrics of ``summarize``."""
    ks = list(ks)
    reports = [summarize(fold, ks) for fold in ranks]
    return {
        direction: {
            name: sum(report[direction][name] for report in reports) / len(reports)
            for name in metrics
        }
        for direction, metrics in reports[0].items()
    }


def _fold_scores(fold: Fold, scores: BlockScores) -> BlockScores:
    return lambda rows, columns: scores(fold.images[rows], fold.captions[columns])
