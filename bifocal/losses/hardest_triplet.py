"""Triplet ranking loss on the hardest negative of the batch."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches, mean_of_matches


class HardestTripletLoss(nn.Module):
    """Triplet ranking loss on the hardest negative of the batch.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (6)-(7); thesis eq. (3.10)-(3.11).
    All captions of an image are positives of it, never negatives.

    Args:
        margin: alpha of eq. (6), in units of the score (a cosine is in [-1, 1]).

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the mean over the matches.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> loss = HardestTripletLoss(margin=0.2)
        >>> loss(Scores(torch.eye(2)), torch.eye(2, dtype=torch.bool)).item()
        0.0
    """

    def __init__(self, margin: float = 0.2) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        image, caption = matches.nonzero(as_tuple=True)
        slack = self.margin - scores.cross[image, caption]
        # Mask the positive instead of lowering it: when its score is negative, subtracting
        # twice that score can make it the hardest negative.
        negatives = scores.cross.masked_fill(matches, -torch.inf)
        caption_cost = relu(slack + negatives.max(dim=1).values[image])
        image_cost = relu(slack + negatives.max(dim=0).values[caption])
        return mean_of_matches(caption_cost + image_cost)
