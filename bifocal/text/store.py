"""The text store: one Arrow IPC file of captions, memory-mapped, and the words that token ids stand for."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bifocal.text.format import DTYPES, Array, Kind, Layout, Rows, Text, collate
from bifocal.text.vocabulary import Vocabulary
from bifocal.text.word_vectors.word_vectors import WordVectors

CAPTIONS, LAYOUT = "captions.arrow", "text.json"
BATCH = 1024
"""Captions of a record batch; all but the last have as many."""


def write_store(directory: Path, layout: Layout, caption_ids: Sequence[int], batches: Iterator[Rows]) -> None:
    """Write the captions' rows, which ``batches`` gives ``BATCH`` at a time in the order of ``caption_ids``."""
    (directory / LAYOUT).write_text(json.dumps(asdict(layout), indent=2) + "\n")
    fields = [
        pa.field("caption_id", pa.int64()),
        pa.field("values", pa.list_(pa.from_numpy_dtype(DTYPES[layout.kind]))),
    ]
    if layout.kind == "sparse":
        fields.append(pa.field("indices", pa.list_(pa.int32())))
    schema = pa.schema(fields)
    with pa.OSFile(str(directory / CAPTIONS), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for number, rows in enumerate(batches):
            columns = [
                pa.array(caption_ids[number * BATCH : number * BATCH + len(rows.values)], pa.int64()),
                *(_ragged(column) for column in (rows.values, rows.indices) if column is not None),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


class TextStore:
    """Random access to the captions of a text artifact; nothing but the batch asked for is loaded.

    Args:
        directory: of the artifact.

    Attributes:
        kind: "tokens", "vectors", "contextual" or "sparse"; says what :meth:`gather` gives.
        dim: K, input dimension of the text encoder.
        caption_ids: (N,) int64 in the order of the rows.

    Raises:
        FileNotFoundError: the directory holds no text.
        ValueError: a file of it is cut off.
    """

    def __init__(self, directory: Path) -> None:
        if not (directory / LAYOUT).is_file():
            raise FileNotFoundError(f"{directory} holds no {LAYOUT}: run vectorize_captions, which writes the text")
        self.directory = directory
        self.layout = Layout(**json.loads((directory / LAYOUT).read_text()))
        self.kind: Kind = self.layout.kind
        self.dim = self.layout.dim
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(directory / CAPTIONS)))
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        except pa.ArrowInvalid as error:
            raise ValueError(f"{directory / CAPTIONS} is cut off: run vectorize_captions again ({error})") from error
        ids = [batch.column("caption_id").to_numpy() for batch in batches]
        self.caption_ids: NDArray[np.int64] = np.concatenate(ids) if ids else np.empty(0, np.int64)
        self._row = {caption_id: row for row, caption_id in enumerate(self.caption_ids.tolist())}
        names = ("values", "indices") if self.kind == "sparse" else ("values",)
        self._columns = [
            [
                (column.offsets.to_numpy(), column.values.to_numpy())
                for column in (batch.column(name) for batch in batches)
            ]
            for name in names
        ]

    def __len__(self) -> int:
        """N, the number of captions."""
        return len(self.caption_ids)

    def rows(self, caption_ids: ArrayLike) -> NDArray[np.int64]:
        """The rows of these captions, in the order given.

        Raises:
            ValueError: the store does not have one of them.
        """
        wanted = np.asarray(caption_ids, dtype=np.int64).tolist()
        missing = [caption_id for caption_id in wanted if caption_id not in self._row]
        if missing:
            raise ValueError(
                f"the text store lacks {len(missing)} of {len(wanted)} captions, the first is {missing[0]}: "
                f"run vectorize_captions on the dataset that has them (the store has {len(self)} captions)"
            )
        return np.array([self._row[caption_id] for caption_id in wanted], dtype=np.int64)

    def gather(self, rows: ArrayLike | Tensor) -> Text:
        """The captions in ``rows`` (B,), in that order; a row may come more than once."""
        places = np.asarray(rows, dtype=np.int64).tolist()
        values, *indices = ([_row(column, place) for place in places] for column in self._columns)
        return collate(self.layout, values, indices[0] if indices else None)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the token ids."""
        return self._words.vocabulary

    @cached_property
    def word_vectors(self) -> Tensor:
        """(V, K) float32, row 0 (padding) being zero, row 1 ``<unk>``."""
        return torch.from_numpy(self._words.vectors)

    @cached_property
    def _words(self) -> WordVectors:
        if self.kind != "tokens":
            raise ValueError(
                f"{self.directory} holds {self.kind}, no tokens: it has neither vocabulary nor word vectors"
            )
        return WordVectors.load(self.directory)


def _ragged(rows: Sequence[Array]) -> pa.ListArray:
    offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"{len(rows)} captions hold {offsets[-1]} numbers, more than one record batch can")
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.concatenate(rows)))


def _row(column: list[tuple[Array, Array]], place: int) -> Array:
    offsets, values = column[place // BATCH]
    start, end = offsets[place % BATCH : place % BATCH + 2]
    row: Array = values[start:end]
    return row
