"""The text store: encoded captions in one memory-mapped Arrow IPC file, and batches of them for
torch."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import scipy  # its packages are imported when they are used
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bifocal.durable import write_json
from bifocal.onnx.files import read_json
from bifocal.onnx.text.captions import (
    DTYPES,
    Array,
    EncodedCaptions,
    TextFormat,
    Vocabulary,
    pad_captions,
)
from bifocal.onnx.text.word_vectors import WordVectors

CAPTIONS, FORMAT = "captions.arrow", "text.json"
BATCH = 1024
"""Captions per record batch; only the last record batch may be smaller."""


class TextBatch(NamedTuple):
    """A batch of B captions.

    Attributes:
        values: "tokens": (B, T) int64 token ids, padded with 0; "vectors" and
            "sparse": (B, K) float32; "contextual": (B, L, T, K) float32 with L layers.
        lengths: (B,) int64, number of tokens of each caption; 1 for formats without a time axis.
    """

    values: Tensor
    lengths: Tensor


def collate(
    text_format: TextFormat, values: Sequence[Array], indices: Sequence[Array] | None
) -> TextBatch:
    """Return encoded captions as one batch, padded to the longest caption."""
    return TextBatch(*map(torch.from_numpy, pad_captions(text_format, values, indices)))


def sparse_rows(
    text_format: TextFormat, values: Sequence[Array], indices: Sequence[Array] | None
) -> "scipy.sparse.csr_matrix":
    """Return encoded captions with one vector each, dense or sparse, as a sparse matrix (B, K)."""
    if text_format.name not in ("vectors", "sparse"):
        raise ValueError(
            f"{text_format.name} have no single vector per caption: vectorize with TFIDF"
        )
    if indices is None:
        return scipy.sparse.csr_matrix(
            np.stack(values) if len(values) else np.empty((0, text_format.dim), np.float32)
        )
    ends = np.cumsum([0, *(len(row) for row in values)])
    flat = (np.concatenate(arrays) if len(values) else np.empty(0) for arrays in (values, indices))
    return scipy.sparse.csr_matrix((*flat, ends), (len(values), text_format.dim))


def write_store(
    directory: Path,
    text_format: TextFormat,
    caption_ids: Sequence[int],
    batches: Iterator[EncodedCaptions],
) -> None:
    """Write encoded captions; ``batches`` are of ``BATCH`` captions each, in the order of
    ``caption_ids``."""
    write_json(directory / FORMAT, text_format)
    fields = [
        pa.field("caption_id", pa.int64()),
        pa.field("values", pa.list_(pa.from_numpy_dtype(DTYPES[text_format.name]))),
    ]
    if text_format.name == "sparse":
        fields.append(pa.field("indices", pa.list_(pa.int32())))
    schema = pa.schema(fields)
    with (
        pa.OSFile(str(directory / CAPTIONS), "wb") as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for number, captions in enumerate(batches):
            columns = [
                pa.array(
                    caption_ids[number * BATCH : number * BATCH + len(captions.values)], pa.int64()
                ),
                *(
                    _ragged(column)
                    for column in (captions.values, captions.indices)
                    if column is not None
                ),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


class TextStore:
    """Random access to encoded captions on disk; a batch is read only when it is requested.

    Args:
        directory: folder that ``bifocal.text.vectorizers.base.write_text`` wrote.

    Attributes:
        format: format of the captions; determines the shape of :meth:`gather`.
        caption_ids: (N,) int64, in the order of the rows.

    Raises:
        FileNotFoundError: the directory contains no text.
        ValueError: a file is truncated.
    """

    def __init__(self, directory: Path) -> None:
        if not (directory / FORMAT).is_file():
            raise FileNotFoundError(f"{directory} contains no text: {FORMAT} is missing")
        self.directory = directory
        self.format = TextFormat(**read_json(directory / FORMAT))
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(directory / CAPTIONS)))
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"{directory / CAPTIONS} is truncated ({error}): write the text again"
            ) from error
        ids = [batch.column("caption_id").to_numpy() for batch in batches]
        self.caption_ids: NDArray[np.int64] = np.concatenate(ids) if ids else np.empty(0, np.int64)
        self._row = {caption_id: row for row, caption_id in enumerate(self.caption_ids.tolist())}
        names = ("values", "indices") if self.format.name == "sparse" else ("values",)
        self._columns = [
            [
                (column.offsets.to_numpy(), column.values.to_numpy())
                for column in (batch.column(name) for batch in batches)
            ]
            for name in names
        ]

    def __len__(self) -> int:
        return len(self.caption_ids)

    @property
    def dim(self) -> int:
        """K, input dimension of the text encoder."""
        return self.format.dim

    def rows(self, caption_ids: ArrayLike) -> NDArray[np.int64]:
        """Return the rows of these captions, in this order.

        Raises:
            ValueError: the store lacks a caption.
        """
        requested = np.asarray(caption_ids, dtype=np.int64).tolist()
        missing = [caption_id for caption_id in requested if caption_id not in self._row]
        if missing:
            raise ValueError(
                f"the text store {self.directory} has {len(self)} captions and lacks "
                f"{len(missing)} of {len(requested)}, the first is {missing[0]}: vectorize the "
                "captions of this dataset"
            )
        return np.array([self._row[caption_id] for caption_id in requested], dtype=np.int64)

    def gather(self, rows: ArrayLike | Tensor) -> TextBatch:
        """Return the captions in ``rows`` (B,), in this order; rows may repeat."""
        return collate(self.format, *self._read(rows))

    def gather_sparse(self, rows: ArrayLike | Tensor) -> "scipy.sparse.csr_matrix":
        """Return the captions in ``rows`` (B,), one vector each, as a sparse matrix (B, K).

        Raises:
            ValueError: the captions are tokens or contextual vectors.
        """
        return sparse_rows(self.format, *self._read(rows))

    def _read(self, rows: ArrayLike | Tensor) -> tuple[list[Array], list[Array] | None]:
        """Return the values of captions, and their positions if the format is sparse."""
        indices = np.asarray(rows, dtype=np.int64).tolist()
        values, *positions = (
            [_row(column, index) for index in indices] for column in self._columns
        )
        return values, positions[0] if positions else None

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Words of the token ids."""
        return self._words.vocabulary

    @cached_property
    def word_vectors(self) -> Tensor:
        """(V, K) float32; row 0 (padding) is zero, row 1 is ``<unk>``."""
        return torch.from_numpy(self._words.vectors)

    @cached_property
    def _words(self) -> WordVectors:
        if self.format.name != "tokens":
            raise ValueError(
                f"{self.directory} contains {self.format.name}, not tokens: it has neither "
                "vocabulary nor word vectors"
            )
        return WordVectors.load(self.directory)


def _ragged(rows: Sequence[Array]) -> pa.ListArray:
    offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"{len(rows)} captions have {offsets[-1]} numbers, more than a record batch can hold"
        )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.concatenate(rows)))


def _row(column: list[tuple[Array, Array]], index: int) -> Array:
    offsets, values = column[index // BATCH]
    start, end = offsets[index % BATCH : index % BATCH + 2]
    row: Array = values[start:end]
    return row
