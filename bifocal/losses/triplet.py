"""Triplet ranking loss on all negatives of the batch, or on one selected negative."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches, is_diagonal, mean_of_matches

Negatives = Literal["all", "random", "hardest", "semi_hard"]


class TripletLoss(nn.Module):
    """Triplet ranking loss in both directions.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (5)-(7); thesis eq. (3.9)-(3.11).
    All captions of an image are positives of it, never negatives. ``negatives`` selects the sets
    C_n and D_n of eq. (5) from the pairs that do not match:

    - "all";
    - "random": one negative, drawn again at each call;
    - "hardest": the negative of the highest score, eq. (7): ``HardestTripletLoss``;
    - "semi_hard": the negative of the highest score below the positive's (Schroff et al.,
      "FaceNet", CVPR 2015, section 3.2); if all negatives score higher than the positive, the
      lowest of them.

    Args:
        margin: alpha of eq. (6), in units of the score (a cosine is in [-1, 1]).
        negatives: "all", "random", "hardest" or "semi_hard".

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar: the sum over the negatives, the mean
        over the matches.

    Raises:
        ValueError: the shapes differ, or ``negatives`` is unknown.

    Example:
        >>> scores, matches = (
        ...     Scores(torch.tensor([[0.9, 0.8], [0.1, 0.7]])),
        ...     torch.eye(2, dtype=torch.bool),
        ... )
        >>> round(TripletLoss(margin=0.2)(scores, matches).item(), 2)
        0.2
    """

    def __init__(self, margin: float = 0.2, negatives: Negatives = "all") -> None:
        super().__init__()
        if negatives not in ("all", "random", "hardest", "semi_hard"):
            raise ValueError(
                f"no negatives {negatives!r}; TripletLoss has all, random, hardest, semi_hard"
            )
        self.margin, self.negatives = margin, negatives

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        image, caption = matches.nonzero(as_tuple=True)
        positives = scores.cross[image, caption].unsqueeze(1)
        slack = self.margin - positives
        # Mask the positive instead of lowering it: when its score is negative, subtracting
        # twice that score can make it the hardest negative.
        negatives = scores.cross.masked_fill(matches, -torch.inf)
        if self.negatives == "hardest":
            caption_cost = relu(slack[:, 0] + negatives.max(dim=1).values[image])
            image_cost = relu(slack[:, 0] + negatives.max(dim=0).values[caption])
            return mean_of_matches(caption_cost + image_cost)
        if self.negatives == "all":
            if is_diagonal(matches, image, caption):  # the same values, faster
                return (relu(negatives + slack).sum() + relu(negatives + slack.T).sum()) / len(
                    image
                )
            rows, columns = negatives.index_select(0, image), negatives.T.index_select(0, caption)
            return mean_of_matches(relu(rows + slack).sum(dim=1) + relu(columns + slack).sum(dim=1))
        caption_cost = self._cost(positives, scores.cross[image], ~matches[image])
        image_cost = self._cost(positives, scores.cross.T[caption], ~matches.T[caption])
        return mean_of_matches(caption_cost + image_cost)

    def _cost(self, positives: Tensor, candidates: Tensor, negative: Tensor) -> Tensor:
        """Return the cost of each of the positives (K, 1) against the candidates (K, C) that are
        ``negative``."""
        if candidates.shape[1] == 0:
            return positives.new_zeros(len(positives))
        preference = self._preference(positives, candidates)
        selected = preference.masked_fill(~negative, -torch.inf).argmax(dim=1, keepdim=True)
        cost = relu(self.margin - positives + candidates.gather(1, selected)) * negative.gather(
            1, selected
        )
        return cost.squeeze(1)

    def _preference(self, positives: Tensor, candidates: Tensor) -> Tensor:
        """Return a value per candidate (K, C); the negative of the highest value is selected."""
        if self.negatives == "random":
            return torch.rand_like(candidates)
        # Below the positive's score the nearest negative is best. Above it the lowest is best, but
        # after all negatives below: those get values in (0, 1], these negative values.
        distance = positives.detach() - candidates.detach()
        return torch.where(distance > 0, 1 / (1 + distance), distance)
