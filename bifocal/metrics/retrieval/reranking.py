"""Re-ranking: scores normalised by the other side's best, Engilberge's thesis, 2020, eq. (3.12)-(3.13)."""

import torch
from torch import Tensor


def rerank_for_captions(scores: Tensor) -> Tensor:
    """Scores for caption retrieval normalised by each caption's best image, thesis eq. (3.13).

    A caption whose best score is not positive keeps its scores: the ratio would turn its order around.

    Shape:
        (N images, M captions) -> the same.
    """
    return scores * rerank_factor(scores.amax(dim=0, keepdim=True))


def rerank_for_images(scores: Tensor) -> Tensor:
    """Scores for image retrieval normalised by each image's best caption, thesis eq. (3.12); as above."""
    return rerank_for_captions(scores.T).T


def rerank_factor(best: Tensor) -> Tensor:
    """What a candidate's scores are multiplied by: S + S / best is S (1 + 1 / best).

    Args:
        best: the candidate's best score.

    Shape:
        any, and the same.
    """
    return torch.where(best > 0, 1 + 1 / best, torch.ones_like(best))
