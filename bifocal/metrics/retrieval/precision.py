"""R-Precision and AP@R of queries with several correct candidates."""

import torch
from torch import Tensor

from bifocal.metrics.ranking.average_precision import precision_by_rank
from bifocal.metrics.retrieval.blockwise_ranks import IMAGES, BlockScores

PRECISIONS = ("R-precision", "mAP@R")
"""Columns of the results, as named in reports."""


def precision_at_r(scores: Tensor, matches: Tensor) -> Tensor:
    """Return R-Precision and AP@R of each query with R correct candidates: precision among its
    first R candidates.

    R-Precision is the share of correct candidates among the first R. AP@R is the mean over these R
    ranks of the precision up to the rank, 0 at a wrong candidate. Musgrave et al., "A metric
    learning reality check", ECCV 2020, section 3.2; Chun et al., "ECCV Caption", ECCV 2022, section
    4. Tied candidates count as if each of their orders were equally likely.

    Shape:
        scores (Q, C), matches (Q, C) bool -> (Q, 2) float64, in [0, 1].

    Raises:
        ValueError: a score is NaN, or a query has no correct candidate.

    Example:
        >>> precision_at_r(
        ...     torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[False, True, True]])
        ... ).tolist()
        [[0.5, 0.25]]
    """
    counts = matches.sum(dim=1, keepdim=True)
    without = int((counts == 0).sum())
    if without:
        raise ValueError(
            f"{without} of {len(scores)} queries have no correct candidate: add it, or leave "
            "them out"
        )
    depth = int(counts.max()) if len(counts) else 0
    probability, precision = precision_by_rank(scores, matches, depth)
    probability = probability * (torch.arange(depth, device=scores.device) < counts)
    return torch.stack([probability, probability * precision]).sum(dim=2).T / counts


def caption_precision(scores: BlockScores, image_of_caption: Tensor, images: int) -> Tensor:
    """Return ``precision_at_r`` of each image's own captions (images, 2), without the whole matrix
    in memory."""
    columns = torch.arange(len(image_of_caption))
    return torch.cat(
        [
            precision_at_r(scores(rows, columns), rows.unsqueeze(1) == image_of_caption)
            for rows in torch.arange(images).split(IMAGES)
        ]
    )


def chance_precision(image_of_caption: Tensor) -> Tensor:
    """Return ``caption_precision`` of equal scores (images, 2)."""
    counts, inverse = image_of_caption.bincount().unique(return_inverse=True)
    matches = torch.arange(len(image_of_caption)) < counts.unsqueeze(1)
    return precision_at_r(torch.zeros(matches.shape), matches)[inverse]
