"""Triplet ranking loss on the hardest negative of the batch."""

from bifocal.losses.triplet import TripletLoss


class HardestTripletLoss(TripletLoss):
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
        >>> import torch
        >>> from bifocal.scores import Scores
        >>> loss = HardestTripletLoss(margin=0.2)
        >>> loss(Scores(torch.eye(2)), torch.eye(2, dtype=torch.bool)).item()
        0.0
    """

    def __init__(self, margin: float = 0.2) -> None:
        super().__init__(margin, "hardest")
