"""InfoNCE loss: softmax cross-entropy of each match against the negatives of the batch."""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from bifocal.scores import Scores, check_matches


class InfoNCELoss(nn.Module):
    """Cross-entropy of each match against all negatives of the batch, in both directions.

    van den Oord, Li, Vinyals, "Representation learning with contrastive predictive coding", 2018, eq. (4), where f is
    exp(cosine / temperature); symmetric as in Radford et al., "CLIP", ICML 2021. Other captions of the same image are
    no negatives: a match (n, m) competes with the captions that do not match image n, and with the images that do not
    match caption m.

    Args:
        temperature: tau, in units of the score; fixed (CLIP starts at 0.07 and learns it).

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the mean over the matches of the sum of both directions.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> loss = InfoNCELoss(temperature=1.0)
        >>> round(loss(Scores(torch.zeros(2, 2)), torch.eye(2, dtype=torch.bool)).item(), 4)  # 2 log 2
        1.3863
    """

    def __init__(self, temperature: float = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        return info_nce(scores.cross, matches, self.temperature)


def info_nce(scores: Tensor, matches: Tensor, temperature: float) -> Tensor:
    """Return the value of ``InfoNCELoss`` for a score matrix (N, M).

    Raises:
        ValueError: the shapes differ.
    """
    check_matches(scores, matches)
    logits = scores / temperature
    # The mask is finite, so that the loss and its gradient are 0 where a match has no negatives.
    negatives = logits.masked_fill(matches, torch.finfo(logits.dtype).min / 2)
    image, caption = matches.nonzero(as_tuple=True)
    positives = logits[image, caption]
    # -log(e^p / (e^p + sum of e^n)) is softplus(log(sum of e^n) - p).
    caption_cost = softplus(negatives.logsumexp(dim=1)[image] - positives)
    image_cost = softplus(negatives.logsumexp(dim=0)[caption] - positives)
    return (caption_cost + image_cost).mean()
