"""Re-ranking: scores normalized by the best score of each candidate, Engilberge's thesis, 2020, eq. (3.12)-(3.13)."""

import torch
from torch import Tensor


def rerank_for_captions(scores: Tensor) -> Tensor:
    """Return scores for caption retrieval normalized by each caption's best image, thesis eq. (3.13).

    A caption whose best score is not positive keeps its scores: the ratio would reverse their order.

    Shape:
        (N images, M captions) -> (N, M)
    """
    return scores * rerank_factor(scores.amax(dim=0, keepdim=True))


def rerank_for_images(scores: Tensor) -> Tensor:
    """Return scores for image retrieval normalized by each image's best caption, thesis eq. (3.12).

    An image whose best score is not positive keeps its scores.

    Shape:
        (N images, M captions) -> (N, M)
    """
    return rerank_for_captions(scores.T).T


def rerank_factor(best: Tensor) -> Tensor:
    """Return the factor of a candidate's scores, given its best one: S + S / best is S (1 + 1 / best)."""
    return torch.where(best > 0, 1 + 1 / best, torch.ones_like(best))
