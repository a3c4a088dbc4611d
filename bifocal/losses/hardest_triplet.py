"""Triplet ranking loss on the hardest negatives of the batch."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches


class HardestTripletLoss(nn.Module):
    """Triplet ranking loss on the hardest negatives of the batch.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (6)-(7); thesis eq. (3.10)-(3.11). Every caption
    of an image is a positive of it, and never a negative.

    Args:
        margin: alpha of eq. (6), in units of the score (a cosine spans [-1, 1]).

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the mean over the matches.
    """

    def __init__(self, margin: float = 0.2) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        positives = scores.cross
        # Mask the positive, do not lower it: when its score is negative, subtracting
        # twice that score can make it the hardest negative.
        negatives = positives.masked_fill(matches, -torch.inf)
        caption_cost = relu(self.margin - positives + negatives.amax(dim=1, keepdim=True))
        image_cost = relu(self.margin - positives + negatives.amax(dim=0, keepdim=True))
        return (caption_cost + image_cost)[matches].mean()
