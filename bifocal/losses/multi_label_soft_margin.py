"""Multi-label soft margin loss: the plain loss of classification."""

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bifocal.scores import Scores, check_matches


class MultiLabelSoftMarginLoss(nn.Module):
    """Cross-entropy of every (class, element) on its own, for which scores are logits.

    The multi-label soft margin loss of thesis 5.5.2, the plain surrogate of mean average precision.

    Shape:
        scores.cross (C, n), matches (C, n) bool -> scalar, the mean over all.
    """

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        return binary_cross_entropy_with_logits(scores.cross, matches.to(scores.cross.dtype))
