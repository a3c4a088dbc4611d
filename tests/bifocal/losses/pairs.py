"""Random scores with their matches, and loops that the equations of several losses share."""

import math

import torch
from torch import Tensor

Matrix = list[list[float]]
Matches = list[list[bool]]


def cosines(images: int, captions_per_image: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return scores in [-1, 1], also negative ones of positive pairs, and their matches."""
    generator = torch.Generator().manual_seed(seed)
    size = images, images * captions_per_image
    scores = 2 * torch.rand(*size, generator=generator, dtype=torch.float64) - 1
    return scores, torch.eye(images, dtype=torch.bool).repeat_interleave(captions_per_image, dim=1)


def negatives_of(scores: Matrix, matches: Matches) -> list[tuple[float, list[float], list[float]]]:
    """Each positive with the negative captions of its image and the negative images of its
    caption."""
    return [
        (
            positive,
            [row[k] for k in range(len(row)) if not matches[n][k]],
            [scores[k][m] for k in range(len(scores)) if not matches[k][m]],
        )
        for n, row in enumerate(scores)
        for m, positive in enumerate(row)
        if matches[n][m]
    ]


def negative_log_posteriors(scores: Matrix, matches: Matches, scale: float) -> float:
    """-log(f(match) / (f(match) + sum of f(negative))), over the captions, then over the images."""
    total, positives = 0.0, negatives_of(scores, matches)
    for positive, *groups in positives:
        match = math.exp(scale * positive)
        for group in groups:
            total -= math.log(match / (match + sum(math.exp(scale * n) for n in group)))
    return total / len(positives)
