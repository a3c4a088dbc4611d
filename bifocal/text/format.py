"""Encoded captions: the format of one caption, and padded batches of captions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy  # its packages are imported when they are used
import torch
from numpy.typing import NDArray
from torch import Tensor

FormatName = Literal["tokens", "subwords", "vectors", "contextual", "sparse"]
Array = NDArray[Any]

DTYPES: dict[FormatName, type[np.generic]] = {
    "tokens": np.int32,
    "subwords": np.int32,
    "vectors": np.float32,
    "contextual": np.float16,
    "sparse": np.float32,
}


class TextBatch(NamedTuple):
    """A batch of B captions.

    Attributes:
        values: "tokens" and "subwords": (B, T) int64 token ids, padded with 0; "vectors" and "sparse": (B, K) float32;
            "contextual": (B, L, T, K) float32 with L layers.
        lengths: (B,) int64, number of tokens of each caption; 1 for formats without a time axis.
    """

    values: Tensor
    lengths: Tensor


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


def collate(text_format: TextFormat, values: Sequence[Array], indices: Sequence[Array] | None) -> TextBatch:
    """Return encoded captions as one batch, padded to the longest caption."""
    if text_format.name in ("tokens", "subwords"):
        return _pad_tokens(values)
    if text_format.name == "contextual":
        return _pad_layers(text_format, values)
    ones = torch.ones(len(values), dtype=torch.int64)
    if indices is None:
        return TextBatch(torch.from_numpy(np.stack(values)) if len(values) else torch.empty(0, text_format.dim), ones)
    dense = np.zeros((len(values), text_format.dim), dtype=np.float32)
    for row, (columns, row_values) in enumerate(zip(indices, values, strict=True)):
        dense[row, columns] = row_values
    return TextBatch(torch.from_numpy(dense), ones)


def sparse_rows(
    text_format: TextFormat, values: Sequence[Array], indices: Sequence[Array] | None
) -> "scipy.sparse.csr_matrix":
    """Return encoded captions with one vector each, dense or sparse, as a sparse matrix (B, K)."""
    if text_format.name not in ("vectors", "sparse"):
        raise ValueError(f"{text_format.name} have no single vector per caption: vectorize with TFIDF")
    if indices is None:
        return scipy.sparse.csr_matrix(np.stack(values) if len(values) else np.empty((0, text_format.dim), np.float32))
    ends = np.cumsum([0, *(len(row) for row in values)])
    flat = (np.concatenate(arrays) if len(values) else np.empty(0) for arrays in (values, indices))
    return scipy.sparse.csr_matrix((*flat, ends), (len(values), text_format.dim))


def _pad_tokens(values: Sequence[Array]) -> TextBatch:
    lengths = [len(row) for row in values]
    ids = np.zeros((len(values), max(lengths, default=0)), dtype=np.int64)
    for row, row_values in enumerate(values):
        ids[row, : lengths[row]] = row_values
    return TextBatch(torch.from_numpy(ids), torch.tensor(lengths, dtype=torch.int64))


def _pad_layers(text_format: TextFormat, values: Sequence[Array]) -> TextBatch:
    layers, dim = text_format.layers, text_format.dim
    lengths = [len(row) // (layers * dim) for row in values]
    padded = np.zeros((len(values), layers, max(lengths, default=0), dim), dtype=np.float32)
    for row, row_values in enumerate(values):
        padded[row, :, : lengths[row]] = row_values.reshape(layers, lengths[row], dim)
    return TextBatch(torch.from_numpy(padded), torch.tensor(lengths, dtype=torch.int64))
