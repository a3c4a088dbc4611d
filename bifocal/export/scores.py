"""Scoring graph of a late-interaction model: image cells and sentence words in, scores of pairs out."""

from torch import Tensor, nn

from bifocal.models import GroundingModel
from bifocal.models.pertinence import pertinence


class LateInteraction(nn.Module):
    """Scores (N, M) of a ``GroundingModel``, R_w + R_s for all pairs, in operations that ONNX supports. Akbari et al.,
    CVPR 2019, eq. (1)-(6); cells (N, L, R, d), sentences (M, d) and words (M, T, d) are zero for padding.
    """

    def __init__(self, model: GroundingModel) -> None:
        super().__init__()
        self.attention, self.sharpness = model.attention, model.word_sharpness

    def forward(self, cells: Tensor, sentences: Tensor, words: Tensor) -> Tensor:
        attention = self.attention
        by_word = self._best(words.flatten(0, 1), cells, unit=True, level=attention.word_level)
        by_word = self.sharpness * by_word.unflatten(1, (words.shape[0], words.shape[1]))
        absent = ~words.any(dim=2)
        highest = by_word.masked_fill(absent, -1e4).amax(dim=2, keepdim=True)
        terms = (by_word - highest).exp().masked_fill(absent, 0.0)
        word_scores = (highest.squeeze(2) + terms.sum(dim=2).log()) / self.sharpness
        unit, level = attention.unit_sentence, attention.sentence_level
        scores: Tensor = word_scores + self._best(sentences, cells, unit=unit, level=level)
        return scores

    def _best(self, texts: Tensor, cells: Tensor, *, unit: bool, level: int | None) -> Tensor:
        """Pertinence (N, K) of texts (K, d) at the best level, or at one level."""
        if level is not None:
            cells = cells[:, level : level + 1]
        return pertinence(texts, cells, unit=unit, softmax=self.attention.softmax).amax(dim=2)
