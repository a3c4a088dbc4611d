"""Encoded captions: one array per caption, padded batches, and the base of the vectorizers that need only NumPy."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FormatName = Literal["tokens", "subwords", "vectors", "contextual", "sparse"]
Array = NDArray[Any]

DTYPES: dict[FormatName, type[np.generic]] = {
    "tokens": np.int32,
    "subwords": np.int32,
    "vectors": np.float32,
    "contextual": np.float16,
    "sparse": np.float32,
}


@dataclass(frozen=True)
class TextFormat:
    """Format of the captions of a text.

    Attributes:
        name: "tokens", "subwords" (ids for an encoder that contains a transformer), "vectors", "contextual" or
            "sparse".
        dim: K, input dimension of the text encoder; of "subwords", the dimension of the transformer's states.
        layers: L of contextual vectors; 1 for other formats.
    """

    name: FormatName
    dim: int
    layers: int = 1


@dataclass
class EncodedCaptions:
    """Captions as flat arrays, one per caption, with the dtype of their format."""

    values: list[Array]  # token ids (T,), a vector (K,), layers (L T K,), or a sparse vector's non-zero values
    indices: list[Array] | None = None  # int32, ascending positions of the values; only "sparse"
    counts: dict[str, int] = field(default_factory=dict)  # tokens, unknown tokens, empty and truncated captions


class NumpyVectorizer(ABC):
    """A vectorizer that needs neither torch nor SciPy once it is fitted, so that exported models contain it."""

    @property
    @abstractmethod
    def format(self) -> TextFormat:
        """Format of the encoded captions; known after ``fit`` or ``load``."""

    @abstractmethod
    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Encode captions."""

    @abstractmethod
    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Return whether each token of a sentence is known. Stop words are left out."""

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return the inputs of the text encoder for B sentences; see ``pad_captions``."""
        encoded = self.transform(sentences)
        return pad_captions(self.format, encoded.values, encoded.indices)


def pad_captions(
    text_format: TextFormat, values: Sequence[Array], indices: Sequence[Array] | None = None
) -> tuple[Array, Array]:
    """Return the values of B captions, padded to the longest caption, and their lengths (B,); see ``TextBatch``."""
    if text_format.name in ("tokens", "subwords"):
        return pad_ids(values)
    if text_format.name == "contextual":
        return _pad_layers(text_format, values)
    vectors = np.zeros((len(values), text_format.dim), dtype=np.float32)
    for row, row_values in enumerate(values):
        vectors[row, slice(None) if indices is None else indices[row]] = row_values
    return vectors, np.ones(len(values), dtype=np.int64)


def pad_ids(rows: Sequence[Array]) -> tuple[Array, Array]:
    """Return rows of ids as (B, T) int64, padded with 0, and their lengths (B,) int64."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.zeros((len(rows), int(lengths.max(initial=0))), dtype=np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    return ids, lengths


def _pad_layers(text_format: TextFormat, values: Sequence[Array]) -> tuple[Array, Array]:
    layers, dim = text_format.layers, text_format.dim
    lengths = np.array([len(row) // (layers * dim) for row in values], dtype=np.int64)
    padded = np.zeros((len(values), layers, int(lengths.max(initial=0)), dim), dtype=np.float32)
    for row, row_values in enumerate(values):
        padded[row, :, : lengths[row]] = row_values.reshape(layers, lengths[row], dim)
    return padded, lengths


def ignored_arguments(arguments: Mapping[str, Any], ignored: Iterable[str], reason: str) -> Iterator[str]:
    """Yield one message for each of ``ignored`` that is in ``arguments``."""
    for name in ignored:
        if name in arguments:
            yield f"{name} {arguments[name]!r} has no effect {reason}: leave it out"
