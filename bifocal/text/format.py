"""Captions as numbers: how one caption is kept, and how many become a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Kind = Literal["tokens", "vectors", "contextual", "sparse"]
Array = NDArray[Any]

DTYPES: dict[Kind, type[np.generic]] = {
    "tokens": np.int32,
    "vectors": np.float32,
    "contextual": np.float16,
    "sparse": np.float32,
}


class Text(NamedTuple):
    """A batch of B captions.

    Attributes:
        values: by the kind of the text, (B, T) int64 token ids, 0 being padding ("tokens"); (B, K) float32 ("vectors",
            "sparse"); (B, L, T, K) float32, L layers ("contextual").
        lengths: (B,) int64, true steps of each; 1 where there is no time axis.
    """

    values: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class Layout:
    """How every caption of a text is kept.

    Attributes:
        kind: "tokens", "vectors", "contextual" or "sparse".
        dim: K, input dimension of the text encoder.
        layers: L, of contextual vectors; 1 otherwise.
    """

    kind: Kind
    dim: int
    layers: int = 1


@dataclass
class Rows:
    """Some captions, each as one flat array of the dtype of its kind.

    Attributes:
        values: token ids (T,), a vector (K,), layers (L T K,), or the values that are not zero.
        indices: of a sparse text, the places of the values, int32, rising.
        counts: of tokens, unknown ones, empty captions, truncated ones.
    """

    values: list[Array]
    indices: list[Array] | None = None
    counts: dict[str, int] = field(default_factory=dict)


def collate(layout: Layout, values: Sequence[Array], indices: Sequence[Array] | None) -> Text:
    """One batch of captions, padded to the longest of them."""
    ones = torch.ones(len(values), dtype=torch.int64)
    if layout.kind == "vectors":
        return Text(torch.from_numpy(np.stack(values)) if len(values) else torch.empty(0, layout.dim), ones)
    if indices is not None:
        dense = np.zeros((len(values), layout.dim), dtype=np.float32)
        for row, (places, row_values) in enumerate(zip(indices, values, strict=True)):
            dense[row, places] = row_values
        return Text(torch.from_numpy(dense), ones)
    per_step = 1 if layout.kind == "tokens" else layout.layers * layout.dim
    lengths = [len(row) // per_step for row in values]
    longest = max(lengths, default=0)
    if layout.kind == "tokens":
        ids = np.zeros((len(values), longest), dtype=np.int64)
        for row, (length, row_values) in enumerate(zip(lengths, values, strict=True)):
            ids[row, :length] = row_values
        return Text(torch.from_numpy(ids), torch.tensor(lengths, dtype=torch.int64))
    layers = np.zeros((len(values), layout.layers, longest, layout.dim), dtype=np.float32)
    for row, (length, row_values) in enumerate(zip(lengths, values, strict=True)):
        layers[row, :, :length] = row_values.reshape(layout.layers, length, layout.dim)
    return Text(torch.from_numpy(layers), torch.tensor(lengths, dtype=torch.int64))
