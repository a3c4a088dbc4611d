"""Subword tokens of sentences by a ``tokenizer.json``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.text.captions import Array, pad_ids

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

TOKENIZER = "tokenizer.json"


class SubwordTokenizer:
    """Ids of subwords with special tokens, truncated, not padded; ``unknown`` is the id of unknown
    tokens or 0."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self.tokenizer = tokenizer
        name = getattr(tokenizer.model, "unk_token", None)
        self.unknown = (tokenizer.token_to_id(name) if name else None) or 0

    @classmethod
    def read(cls, file: Path, max_tokens: int | None = None) -> "SubwordTokenizer":
        """Read a ``tokenizer.json``; ``max_tokens`` includes special tokens, None keeps the
        truncation of the file."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ImportError(
                "tokens of a transformer need tokenizers: pip install tokenizers"
            ) from error
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_padding()
        if max_tokens is not None:
            tokenizer.enable_truncation(max_tokens)
        tokenizer.encode("a")  # or a damaged part would fail at the first sentence
        return cls(tokenizer)

    def save(self, file: Path) -> None:
        """Write a ``tokenizer.json`` with the truncation."""
        self.tokenizer.save(str(file))

    def encode(self, sentences: Sequence[str]) -> tuple[list[NDArray[np.int32]], dict[str, int]]:
        """Return the ids of each sentence, at least one, and counts as ``EncodedCaptions`` has
        them."""
        encodings: list[Encoding] = self.tokenizer.encode_batch(list(sentences))
        ids = [np.array(encoding.ids or [self.unknown], dtype=np.int32) for encoding in encodings]
        words = [np.array(encoding.special_tokens_mask) == 0 for encoding in encodings]
        counts = {
            "tokens": sum(int(mask.sum()) for mask in words),
            "empty_captions": sum(not mask.any() for mask in words),
            "truncated_captions": sum(bool(encoding.overflowing) for encoding in encodings),
        }
        if (
            self.tokenizer.token_to_id(getattr(self.tokenizer.model, "unk_token", None) or "")
            is not None
        ):
            counts["unknown_tokens"] = sum(int((row == self.unknown).sum()) for row in ids)
        return ids, counts

    def special_ids(self) -> tuple[list[int], list[int]]:
        """Return the special ids before and after the words of a sentence."""
        encoding = self.tokenizer.encode("a")
        words = [
            number for number, special in enumerate(encoding.special_tokens_mask) if not special
        ]
        first, last = (words[0], words[-1]) if words else (len(encoding.ids), len(encoding.ids))
        return encoding.ids[:first], encoding.ids[last + 1 :]

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return ids (B, T) int64, padded with 0, and lengths (B,) int64."""
        return pad_ids(self.encode(sentences)[0])


class FixedLength:
    """Ids of subwords (B, T), padded to the longest sentence of the network."""

    def __init__(self, tokenizer: SubwordTokenizer, padding: int = 0) -> None:
        self.tokenizer, self.length = (
            tokenizer,
            int((tokenizer.tokenizer.truncation or {})["max_length"]),
        )
        self.padding = padding

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return ids (B, T) int64, and lengths (B,) int64."""
        return pad_ids(self.tokenizer.encode(sentences)[0], self.length, self.padding)
