"""A fitted vectorizer that encodes every sentence once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bifocal.text.format import Array, TextBatch, collate
from bifocal.text.vectorizers.base import FittedVectorizer


@dataclass(frozen=True)
class CachedVectorizer(FittedVectorizer):
    """A fitted vectorizer that keeps the encoded sentences in memory.

    For sentences that are vectorized again and again, such as validation captions in every epoch. A sentence of ELMo
    takes 6 kB per token.
    """

    _encoded: dict[str, tuple[Array, Array | None]] = field(default_factory=dict, init=False, repr=False)

    def vectorize(self, sentences: Sequence[str]) -> TextBatch:
        """Return the same batch as ``FittedVectorizer``."""
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self._encoded]
        if new:
            encoded = self.vectorizer.transform(new)
            indices = [None] * len(new) if encoded.indices is None else encoded.indices
            self._encoded.update(zip(new, zip(encoded.values, indices, strict=True), strict=True))
        rows = [self._encoded[sentence] for sentence in sentences]
        positions = [index for _, index in rows if index is not None]
        return collate(self.vectorizer.format, [values for values, _ in rows], positions or None)
