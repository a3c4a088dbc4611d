"""Triplet ranking loss on all negatives of the batch."""

from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches


class TripletLoss(nn.Module):
    """Triplet ranking loss on all negatives of the batch.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (5)-(6); thesis eq. (3.9)-(3.10), C_n and D_n
    being everything in the batch that does not match.

    Args:
        margin: alpha of eq. (6), in units of the score (a cosine spans [-1, 1]).

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar: the sum over the negatives, the mean over the matches.
    """

    def __init__(self, margin: float = 0.2) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        image, caption = matches.nonzero(as_tuple=True)
        positives = scores.cross[image, caption].unsqueeze(1)
        caption_cost = relu(self.margin - positives + scores.cross[image]).masked_fill(matches[image], 0)
        image_cost = relu(self.margin - positives + scores.cross.T[caption]).masked_fill(matches.T[caption], 0)
        return (caption_cost.sum(dim=1) + image_cost.sum(dim=1)).mean()
