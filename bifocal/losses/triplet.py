"""Triplet ranking loss on negatives of the batch: all of them, or one that is chosen."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches

Negatives = Literal["all", "random", "hardest", "semi_hard"]


class TripletLoss(nn.Module):
    """Triplet ranking loss in both directions.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (5)-(7); thesis eq. (3.9)-(3.11). Every caption of an
    image is a positive of it, and never a negative. C_n and D_n of eq. (5) are, of what does not match,

    - "all";
    - "random": one, drawn anew at each call;
    - "hardest": the one that scores highest, eq. (7), as in ``HardestTripletLoss``;
    - "semi_hard": the one that scores highest below the positive (Schroff et al., "FaceNet", CVPR 2015, section 3.2);
      where all score higher, the lowest of them.

    Args:
        margin: alpha of eq. (6), in units of the score (a cosine spans [-1, 1]).
        negatives: one of the four.

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar: the sum over the negatives, the mean over the matches.

    Raises:
        ValueError: the shapes differ, or ``negatives`` is none of the four.
    """

    def __init__(self, margin: float = 0.2, negatives: Negatives = "all") -> None:
        super().__init__()
        if negatives not in ("all", "random", "hardest", "semi_hard"):
            raise ValueError(f"no negatives {negatives!r}; TripletLoss has all, random, hardest, semi_hard")
        self.margin, self.negatives = margin, negatives

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        image, caption = matches.nonzero(as_tuple=True)
        positives = scores.cross[image, caption].unsqueeze(1)
        caption_cost = self._cost(positives, scores.cross[image], ~matches[image])
        image_cost = self._cost(positives, scores.cross.T[caption], ~matches.T[caption])
        return (caption_cost + image_cost).mean()

    def _cost(self, positives: Tensor, candidates: Tensor, negative: Tensor) -> Tensor:
        """Positives (K, 1) against their rows of candidates (K, C), of which some are negatives -> (K,)."""
        if self.negatives == "all":
            return (relu(self.margin - positives + candidates) * negative).sum(dim=1)
        if candidates.shape[1] == 0:
            return positives.new_zeros(len(positives))
        chosen = self._preference(positives, candidates).masked_fill(~negative, -torch.inf).argmax(dim=1, keepdim=True)
        cost = relu(self.margin - positives + candidates.gather(1, chosen)) * negative.gather(1, chosen)
        return cost.squeeze(1)

    def _preference(self, positives: Tensor, candidates: Tensor) -> Tensor:
        """The negative where this is highest is chosen."""
        if self.negatives == "random":
            return torch.rand_like(candidates)
        known = candidates.detach()
        if self.negatives == "hardest":
            return known
        # Below the positive the nearest is best; above it the lowest, after all that are below.
        distance = positives.detach() - known
        return torch.where(distance > 0, 1 / (1 + distance), distance)
