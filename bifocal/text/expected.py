"""Sizes of a text that a vectorizer will write for a published corpus."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bifocal.datasets.published import Download
from bifocal.text.format import TextFormat

SPECIAL_TOKENS = 2
"""Special tokens of a sentence of subwords."""
RECORD_BYTES = 12
"""Caption id and offset of a caption in the store."""


@dataclass(frozen=True)
class ExpectedText:
    """Text of a published corpus, before it is written.

    Attributes:
        format: of the captions.
        vocabulary_size: rows of the word embedding; None unless the captions are tokens.
        network: configuration of the transformer that the text encoder contains; None unless the captions are subwords.
        terms: mean number of values that a sparse vector has per token.
        tokens_per_word: mean number of tokens that a word becomes.
        fitted_bytes: files of the fitted vectorizer.
        fit_bytes: memory of the fit, besides the captions.
        fit_flops: operations of a network during the fit, whatever the number of captions.
        flops_per_token: operations of a network that encodes the captions.
        downloads: files to fetch.
    """

    format: TextFormat
    vocabulary_size: int | None = None
    network: Mapping[str, Any] | None = None
    terms: float = 1.0
    tokens_per_word: float = 1.0
    fitted_bytes: int = 0
    fit_bytes: int = 0
    fit_flops: float = 0.0
    flops_per_token: float = 0.0
    downloads: tuple[Download, ...] = ()

    def tokens(self, words: float) -> float:
        """Return the tokens of a caption of ``words`` words, with the special tokens of subwords."""
        return self.tokens_per_word * words + (SPECIAL_TOKENS if self.format.name == "subwords" else 0)

    def caption_bytes(self, words: float) -> float:
        """Return the bytes of a caption of ``words`` words in the store.

        Example:
            >>> ExpectedText(TextFormat("vectors", 300)).caption_bytes(10.0)
            1212.0
        """
        tokens = self.tokens(words)
        per_caption = {
            "tokens": 4 * tokens,
            "subwords": 4 * tokens,
            "vectors": 4.0 * self.format.dim,
            "contextual": 2 * self.format.layers * self.format.dim * tokens,
            "sparse": 8 * self.terms * tokens,
        }
        return RECORD_BYTES + per_caption[self.format.name]

    def batch_bytes(self, captions: int, longest: int) -> int:
        """Return the bytes of a batch of captions, padded to ``longest`` tokens."""
        per_caption = {
            "tokens": 8 * longest,
            "subwords": 8 * longest,
            "vectors": 4 * self.format.dim,
            "contextual": 4 * self.format.layers * self.format.dim * longest,
            "sparse": 4 * self.format.dim,
        }
        return captions * per_caption[self.format.name]
