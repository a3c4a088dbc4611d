"""Rows with the highest scores in a memory-mapped matrix, block by block."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.search.vectors import FileVectors

Array = NDArray[Any]
BLOCK = 1024
"""Rows per matrix product: their vectors and scores stay in the cache."""
QUERIES = 256
"""Queries per matrix product; fewer queries have as many scores at a time, of more rows."""
CACHED = 512
"""Rows that are converted at a time, so that they stay in the cache."""
SIGN_AND_VALUE, SCALE = np.int32(0x8FFFE000 - 2**32), np.float32(2.0**112)
SAMPLE = 1024
"""Rows of the first block whose best scores bound all others."""
SPARE = 8
"""Candidates beyond the wanted number: float32 may order two nearly equal scores wrongly, float64
then does not."""


def unit_vectors(vectors: Any, dimension: int | None = None) -> NDArray[np.float32]:
    """Return vectors (Q, d) divided by their norms."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2 or (dimension is not None and given.shape[1] != dimension):
        raise ValueError(f"vectors {given.shape}, expected (number, {dimension or 'dimension'})")
    norms = np.sqrt(np.einsum("qd,qd->q", given, given))[:, None]
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise ValueError("a vector is zero or not finite: it has no direction")
    unit: NDArray[np.float32] = (given / norms).astype(np.float32)
    return unit


def nearest_rows(
    vectors: Any, queries: Array, count: int, bias: Array | None, allowed: Array | None
) -> Array:
    """Return candidates (Q, at most ``count`` + ``SPARE``) for the rows of the highest score; -1 if
    there are fewer."""
    kept = min(count + SPARE, len(vectors))
    parts = [queries[start : start + QUERIES] for start in range(0, len(queries), QUERIES)]
    found = [_nearest_rows(vectors, part, kept, bias, allowed) for part in parts]
    return np.concatenate([np.zeros((0, kept), dtype=np.int64), *found])


def _nearest_rows(
    vectors: Any, queries: Array, kept: int, bias: Array | None, allowed: Array | None
) -> Array:
    vectors = mapped(vectors)
    best = _Best(len(queries), kept)
    span = min(BLOCK * (QUERIES // len(queries)), max(len(vectors), 1))
    converted = np.empty((min(BLOCK, span), queries.shape[1]), dtype=np.float32)
    products = np.empty(len(queries) * span, dtype=np.float32)
    for start in range(0, len(vectors), span):
        rows = np.arange(start, min(start + span, len(vectors)))
        if allowed is not None:
            rows = rows[allowed[start : start + span]]
        if not len(rows):
            continue
        scores = products[: len(queries) * len(rows)].reshape(len(queries), len(rows))
        for first in range(0, len(rows), BLOCK):
            some = rows[first : first + BLOCK]
            block = (
                vectors[some[0] : some[-1] + 1] if some[-1] - some[0] < len(some) else vectors[some]
            )
            np.matmul(
                queries,
                to_float32(block, converted[: len(some)]).T,
                out=scores[:, first : first + BLOCK],
            )
        if bias is not None:
            scores += bias[rows].astype(np.float32)
        best.add(scores, rows)
    return best.rows()


class _Best:
    """The rows of the ``kept`` highest scores of each query; equal scores keep the lower row."""

    def __init__(self, queries: int, kept: int) -> None:
        self._scores = np.full((queries, kept), -np.inf, dtype=np.float32)
        self._rows = np.full((queries, kept), -1, dtype=np.int64)
        self._waiting: list[tuple[Array, Array, Array]] = []
        self._waits, self._full = 0, False

    def add(self, scores: Array, rows: Array) -> None:
        """Add scores (Q, n) of n rows, which are higher than all rows so far."""
        queries, kept = self._scores.shape
        thresholds = self._scores[:, -1]
        if not self._full and len(rows) > kept:
            # Too few rows so far. The best of a part of the block bound the best of the block, and
            # cost less to find.
            limit = np.partition(scores[:, : max(SAMPLE, kept)], -kept, axis=1)[:, -kept]
            thresholds = np.maximum(thresholds, np.nextafter(limit, -np.inf, dtype=limit.dtype))
        query, column = np.divmod(np.flatnonzero(scores > thresholds[:, None]), len(rows))
        self._waiting.append((query, scores[query, column], rows[column]))
        self._waits += len(query)
        # Merging costs more than some candidates too many, which the thresholds of an earlier block
        # let pass.
        if self._waits > queries * kept or not self._full:
            self._merge()

    def _merge(self) -> None:
        queries, kept = self._scores.shape
        query, scores, rows = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        query = np.concatenate([np.repeat(np.arange(queries), kept), query])
        scores, rows = (
            np.concatenate([self._scores.ravel(), scores]),
            np.concatenate([self._rows.ravel(), rows]),
        )
        # Both sorts are stable, and the rows of a query ascend: equal scores keep the lower row.
        order = np.argsort(-scores, kind="stable")
        order = order[np.argsort(query[order].astype(np.int16), kind="stable")]
        first = np.searchsorted(query[order], np.arange(queries))
        chosen = order[first[:, None] + np.arange(kept)]
        self._scores, self._rows, self._waiting, self._waits = scores[chosen], rows[chosen], [], 0
        self._full = bool((self._scores[:, -1] > -np.inf).all())

    def rows(self) -> NDArray[np.int64]:
        """Return the rows (Q, kept), best first; -1 if there are fewer."""
        if self._waiting:
            self._merge()
        return self._rows


def to_float32(block: Any, result: NDArray[np.float32]) -> NDArray[np.float32]:
    """Write a matrix of finite float16 to ``result``, and return it; by bits, which takes a quarter
    of NumPy's time."""
    if block.dtype != np.float16:
        result[:] = block
        return result
    halves, all_bits = np.ascontiguousarray(block).view(np.int16), result.view(np.int32)
    for start in range(0, len(halves), CACHED):
        bits, values = all_bits[start : start + CACHED], result[start : start + CACHED]
        bits[:] = halves[start : start + CACHED]
        # Sign, exponent and fraction move to their places; the exponents of both formats differ by
        # 112.
        np.left_shift(bits, 13, out=bits)
        np.bitwise_and(bits, SIGN_AND_VALUE, out=bits)
        np.multiply(values, SCALE, out=values)
    return result


def mapped(vectors: Any) -> Any:
    """Return vectors in a file as an array, whose rows cost less to take; other vectors as they
    are."""
    if isinstance(vectors, FileVectors):
        return vectors.mapped
    return vectors.view(np.ndarray) if isinstance(vectors, np.memmap) else vectors


def rank(
    vectors: Any, queries: Array, candidates: Array, count: int, bias: Array | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scores (Q, count) with biases, and rows (Q, count), of the best candidates, best
    first; see ``scores``."""
    found = scores(vectors, queries, candidates, bias)
    order = np.lexsort((candidates, -found), axis=1)[:, :count]
    query = np.arange(len(found))[:, None]
    return found[query, order], candidates[query, order]


def scores(vectors: Any, queries: Array, rows: Array, bias: Array | None) -> NDArray[np.float64]:
    """Return the scores (Q, C) in float64 with biases, -inf for row -1; equal vectors have equal
    scores."""
    # Taking rows costs a third of indexing by them.
    take = (vectors if isinstance(vectors, FileVectors) else mapped(vectors)).take
    found = np.empty(rows.shape)
    for query, some, row_scores in zip(
        queries.astype(np.float64), np.maximum(rows, 0), found, strict=True
    ):
        # Each row is summed alone, unlike in a matrix product: equal vectors have equal scores.
        np.einsum("cd,d->c", take(some, 0).astype(np.float64), query, out=row_scores)
    if bias is not None:
        found += bias[np.maximum(rows, 0)]
    found[rows < 0] = -np.inf
    return found
