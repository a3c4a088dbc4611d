"""Index of a collection: batches of queries, exact search over memory-mapped vectors, filters. Needs no torch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.search.exact import nearest_rows, rank
from bifocal.search.filters import matching_rows

Array = NDArray[Any]
DESCRIPTION, ITEMS, VECTORS, BIAS = "index.json", "items.parquet", "vectors.f16", "bias.npy"
SCHEMA = 1
"""Version of the files."""


@dataclass(frozen=True)
class SearchHit:
    """One result.

    Attributes:
        row: row of the item in the index.
        item_id: id of the item.
        score: cosine with the query, without the bias that the order depends on; R_w + R_s of a ``GroundingModel``.
        probability: probability that the result is relevant; None if the index is not calibrated.
        explanation: result of ``explain``, such as a heatmap of ``Heatmaps``; None without ``explain``.
    """

    row: int
    item_id: str
    score: float
    probability: float | None = None
    explanation: Any = None


@dataclass(frozen=True)
class IndexDescription:
    """Contents of ``index.json``.

    Attributes:
        dimension: d.
        count: items, with removed ones.
        model: name, version and SHA-256 of the model that computed the vectors; empty if unknown.
        preprocessing: how the model reads an image.
        metric: always the cosine.
        schema: version of the files.
    """

    dimension: int
    count: int
    model: Mapping[str, Any] = field(default_factory=dict)
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "cosine"
    schema: int = SCHEMA


class SearchIndex:
    """Vectors and metadata of the N items of a collection.

    Args:
        items: table with the column ``item_id``, and metadata in columns ``meta.<name>``.
        vectors: (N, d) of unit norm; a memory-mapped file of float16 is read in blocks.
        bias: (N,), added to the scores of corrected searches, see ``bifocal.hubness``; None for no correction.
        description: model and preprocessing; None if unknown.

    Raises:
        ValueError: the numbers of items, vectors and biases differ, or an id occurs twice.

    Example:
        >>> index = SearchIndex.of(["sea", "wood"], np.array([[1.0, 0.0], [0.0, 1.0]]))
        >>> [hit.item_id for hit in index.search(np.array([[0.6, 0.8]]), k=2)[0]]
        ['wood', 'sea']
    """

    def __init__(
        self, items: pa.Table, vectors: Array, bias: Array | None = None, description: IndexDescription | None = None
    ) -> None:
        self.items, self.vectors, self.bias = items, vectors, bias
        self.ids: list[str] = items["item_id"].to_pylist()
        self.description = description or IndexDescription(vectors.shape[1], len(items))
        self._row = {item_id: row for row, item_id in enumerate(self.ids)}
        if len(items) != len(vectors) or len(self._row) != len(items):
            raise ValueError(
                f"{len(items)} ids, {len(self._row)} of them different, and {len(vectors)} vectors: give each "
                "vector its own id"
            )
        if bias is not None and bias.shape != (len(items),):
            raise ValueError(f"bias {bias.shape}, expected ({len(items)},): one number per item")

    @classmethod
    def of(cls, item_ids: Sequence[str], vectors: Any, bias: Any = None) -> "SearchIndex":
        """Return an index in memory of vectors (N, d), which are normalized and rounded to float16.

        Args:
            vectors: an array, or a tensor of torch on the CPU.
            bias: (N,), see the class.

        Raises:
            ValueError: a vector is zero or not finite.
        """
        unit = unit_vectors(np.asarray(vectors))
        table = pa.table({"item_id": pa.array([str(item_id) for item_id in item_ids], pa.string())})
        return cls(table, unit.astype(np.float16), None if bias is None else np.asarray(bias, dtype=np.float32))

    def __len__(self) -> int:
        """Return N, the number of items."""
        return len(self.items)

    def row(self, item_id: str) -> int:
        """Return the row of an item.

        Raises:
            ValueError: the index does not have the item.
        """
        if item_id not in self._row:
            raise ValueError(f"the index has no item {item_id!r} among its {len(self)}; search with its vector")
        return self._row[item_id]

    def vector(self, item_id: str) -> NDArray[np.float32]:
        """Return the vector (d,) of an item.

        Raises:
            ValueError: the index does not have the item.
        """
        return np.asarray(self.vectors[self.row(item_id)], dtype=np.float32)

    def search(
        self,
        vectors: Array,
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        exclude: Sequence[str] = (),
        corrected: bool = False,
    ) -> list[list[SearchHit]]:
        """Return the ``k`` items of the highest cosine with each query, best first; equal scores by their row.

        Args:
            vectors: queries (Q, d); their norms do not matter.
            where: filter of the metadata, see ``bifocal.search.filters.matching_rows``.
            offset: best items to leave out, such as those of former pages.
            exclude: ids of items to leave out, such as the query image.
            corrected: order by the cosine plus the bias of each item, if the index has biases. They are meant for
                sentences as queries.

        Raises:
            ValueError: a query has another dimension, is zero or not finite; ``k`` or ``offset`` is out of range; or
                the filter does not fit the metadata.
        """
        if k < 1 or offset < 0:
            raise ValueError(f"k is {k} and offset {offset}: expected at least 1 and 0")
        queries = unit_vectors(vectors, self.description.dimension)
        bias = self.bias if corrected else None
        count = min(len(self), offset + k)
        candidates = nearest_rows(self.vectors, queries, count, bias, self._allowed(where, exclude))
        scores, rows = rank(self.vectors, queries, candidates, count, bias)
        return [
            [SearchHit(row, self.ids[row], score) for row, score in zip(*found, strict=True) if row >= 0]
            for found in zip(rows[:, offset:].tolist(), scores[:, offset:].tolist(), strict=True)
        ]

    def _allowed(self, where: Mapping[str, Any] | None, exclude: Sequence[str]) -> Array | None:
        if not where and not exclude:
            return None
        allowed = matching_rows(self.items, where or {})
        allowed[[self.row(item_id) for item_id in exclude]] = False
        return allowed

    def write(self, directory: Path) -> None:
        """Write the files of the index to an existing directory; ``index.json`` is the last one."""
        pq.write_table(self.items, directory / ITEMS)
        with (directory / VECTORS).open("wb") as file:
            for start in range(0, len(self), 65_536):
                file.write(np.ascontiguousarray(self.vectors[start : start + 65_536], dtype=np.float16).tobytes())
        if self.bias is not None:
            np.save(directory / BIAS, self.bias)
        description = asdict(replace(self.description, count=len(self)))
        (directory / DESCRIPTION).write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def open(cls, directory: Path, model: str | None = None) -> "SearchIndex":
        """Open an index; its vectors are memory-mapped.

        Args:
            model: SHA-256 of the model that computes the queries; None to compare it with nothing.

        Raises:
            FileNotFoundError: the directory holds no index.
            ValueError: the index belongs to another model, or another version of bifocal wrote it.
        """
        if not (directory / DESCRIPTION).is_file():
            raise FileNotFoundError(f"{directory} holds no index: it has no {DESCRIPTION}")
        content = json.loads((directory / DESCRIPTION).read_text("utf-8"))
        if content.get("schema") != SCHEMA:
            raise ValueError(
                f"{directory} has schema {content.get('schema')}, expected {SCHEMA}: build the index again"
            )
        description = IndexDescription(**content)
        if model is not None and description.model.get("sha256") != model:
            raise ValueError(
                f"the index in {directory} holds vectors of model {_name(description.model)}, but the queries are of a "
                f"model with hash {model[:12]}: build the index again with this model"
            )
        shape = (description.count, description.dimension)
        vectors: Array = np.zeros(shape, dtype=np.float16)
        if len(vectors):  # an empty file cannot be mapped
            vectors = np.memmap(directory / VECTORS, dtype=np.float16, mode="r", shape=shape)
        bias = np.load(directory / BIAS) if (directory / BIAS).is_file() else None
        return cls(pq.read_table(directory / ITEMS), vectors, bias, description)


def _name(model: Mapping[str, Any]) -> str:
    version = f" version {model['version']}" if model.get("version") is not None else ""
    return f"{model.get('name', 'without a name')}{version} with hash {str(model.get('sha256'))[:12]}"


def unit_vectors(vectors: Any, dimension: int | None = None) -> NDArray[np.float32]:
    """Return vectors (Q, d) divided by their norms.

    Raises:
        ValueError: the shape is another one, or a vector is zero or not finite.
    """
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2 or (dimension is not None and given.shape[1] != dimension):
        raise ValueError(f"vectors {given.shape}, expected (number, {dimension or 'dimension'})")
    norms = np.linalg.norm(given, axis=1, keepdims=True)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise ValueError("a vector is zero or not finite: it has no direction")
    unit: NDArray[np.float32] = (given / norms).astype(np.float32)
    return unit
