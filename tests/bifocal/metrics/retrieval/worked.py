"""Scores of five images with two captions each, for worked cases."""

import torch
from torch import Tensor

from bifocal.metrics.retrieval.blockwise_ranks import BlockScores

SCORES = torch.tensor(
    [
        [0.9, 0.1, 0.3, 0.2, 0.0, 0.1, 0.0, 0.2, 0.1, 0.0],
        [0.1, 0.2, 0.4, 0.3, 0.6, 0.1, 0.0, 0.0, 0.1, 0.2],
        [0.2, 0.0, 0.1, 0.8, 0.5, 0.6, 0.3, 0.1, 0.0, 0.7],
        [0.3, 0.2, 0.1, 0.0, 0.4, 0.2, 0.1, 0.3, 0.2, 0.1],
        [0.0, 0.4, 0.2, 0.1, 0.3, 0.7, 0.6, 0.2, 0.5, 0.5],
    ]
)
"""Image i has captions 2i and 2i + 1."""
IMAGE_OF_CAPTION = torch.arange(5).repeat_interleave(2)


def blocks(scores: Tensor) -> BlockScores:
    return lambda rows, columns: scores[rows][:, columns]
