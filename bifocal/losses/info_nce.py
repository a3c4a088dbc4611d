"""InfoNCE: each match against all negatives of the batch, softly."""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from bifocal.scores import Scores, check_matches


class InfoNCELoss(nn.Module):
    """Cross-entropy of a match among all negatives of the batch, in both directions.

    van den Oord, Li, Vinyals, "Representation learning with contrastive predictive coding", 2018, eq. (4), with the
    cosine divided by a temperature as f; symmetric as in Radford et al., "CLIP", ICML 2021. The other captions of an
    image are no negatives of it: a match (n, m) competes with what does not match n, and with what does not match m.

    Args:
        temperature: tau, in units of the score (CLIP starts from 0.07, and learns it; here it is fixed).

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the mean over the matches of the sum of both directions.
    """

    def __init__(self, temperature: float = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        return info_nce(scores.cross, matches, self.temperature)


def info_nce(scores: Tensor, matches: Tensor, temperature: float) -> Tensor:
    """The loss of ``InfoNCELoss`` for any matrix of scores (N, M).

    Raises:
        ValueError: the shapes differ.
    """
    check_matches(scores, matches)
    logits = scores / temperature
    # A finite mask: with nothing to compete with, the loss is 0 and so is its gradient.
    negatives = logits.masked_fill(matches, torch.finfo(logits.dtype).min / 2)
    image, caption = matches.nonzero(as_tuple=True)
    positives = logits[image, caption]
    # -log(e^p / (e^p + sum of e^n)) is softplus(log(sum of e^n) - p).
    caption_cost = softplus(negatives.logsumexp(dim=1)[image] - positives)
    image_cost = softplus(negatives.logsumexp(dim=0)[caption] - positives)
    return (caption_cost + image_cost).mean()
