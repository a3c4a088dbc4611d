"""Posteriors of matching sentences and images, from words and from sentences."""

from torch import Tensor, nn

from bifocal.losses.info_nce import info_nce
from bifocal.scores import Scores


class GroundingLoss(nn.Module):
    """Negative log posteriors of the matches, for the pertinence of the words and for that of the sentence.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, eq. (7)-(10);
    R_w of eq. (5), with its gamma_1, and R_s of eq. (6) come from the model. The paper's batches have one caption of an
    image; here its other captions do not compete with it, as they match too.

    Args:
        sharpness: gamma_2, per unit of pertinence.

    Shape:
        scores.words (N, M), scores.sentences (N, M), matches (N, M) bool -> scalar, L of eq. (10) with the mean over
        the matches in place of the sum.

    Raises:
        ValueError: the shapes differ, or the model scores no words.
    """

    def __init__(self, sharpness: float = 10.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        if scores.words is None or scores.sentences is None:
            raise ValueError("GroundingLoss needs scores of words and of sentences: train a GroundingModel with it")
        return sum(
            (info_nce(part, matches, 1 / self.sharpness) for part in (scores.words, scores.sentences)),
            start=scores.cross.new_zeros(()),
        )
