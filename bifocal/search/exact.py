"""The rows of highest score of a matrix, in blocks of a memory-mapped file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BLOCK = 16_384
"""Rows per matrix product."""
QUERIES = 256
"""Queries per matrix product."""
CHUNK = 256
"""Scores whose maximum is compared with a threshold first."""
CACHED = 2048
"""Rows that are converted at a time, so that they stay in the cache."""
SIGN_AND_VALUE, SCALE = np.int32(0x8FFFE000 - 2**32), np.float32(2.0**112)
SAMPLE = 1024
"""Rows of the first block whose best scores bound the others."""
SPARE = 8
"""Candidates beyond the wanted number: float32 may order two nearly equal scores wrongly, float64 then does not."""


def nearest_rows(vectors: Any, queries: Array, count: int, bias: Array | None, allowed: Array | None) -> Array:
    """Return candidates for the ``count`` rows of the highest score, for each query.

    Args:
        vectors: (N, d) float16: an array, a memory-mapped file, or ``Vectors``.
        queries: (Q, d) float32.
        bias: (N,), added to the scores; None for none.
        allowed: (N,) bool, rows that may be returned; None for all.

    Returns:
        Rows (Q, at most ``count`` + ``SPARE``); -1 if there are fewer.
    """
    kept = min(count + SPARE, len(vectors))
    parts = [queries[start : start + QUERIES] for start in range(0, len(queries), QUERIES)]
    found = [_nearest_rows(vectors, part, kept, bias, allowed) for part in parts]
    return np.concatenate([np.zeros((0, kept), dtype=np.int64), *found])


def _nearest_rows(vectors: Any, queries: Array, kept: int, bias: Array | None, allowed: Array | None) -> Array:
    count = len(queries)
    best = np.full((count, kept), -np.inf, dtype=np.float32)
    rows = np.full((count, kept), -1, dtype=np.int64)
    converted = np.empty((min(BLOCK, len(vectors)), queries.shape[1]), dtype=np.float32)
    for start in range(0, len(vectors), BLOCK):
        block, block_rows = vectors[start : start + BLOCK], np.arange(start, min(start + BLOCK, len(vectors)))
        if allowed is not None and not (chosen := allowed[start : start + BLOCK]).all():
            block, block_rows = block[chosen], block_rows[chosen]
        if not len(block):
            continue
        scores = queries @ to_float32(block, converted[: len(block)]).T
        if bias is not None:
            scores += bias[block_rows].astype(np.float32)
        query, column = _above(scores, best[:, -1], kept)
        best, rows = _merge(best, rows, query, scores[query, column], block_rows[column])
    return rows


def _above(scores: Array, thresholds: Array, kept: int) -> tuple[Array, Array]:
    """Return the query and the column of each score that may be among the ``kept`` best."""
    if np.isneginf(thresholds).any() and scores.shape[1] > kept:
        # Too few rows so far. The best of a part of the block bound the best of the block, and cost less to find.
        limit = np.partition(scores[:, : max(SAMPLE, kept)], -kept, axis=1)[:, -kept]
        thresholds = np.maximum(thresholds, np.nextafter(limit, -np.inf, dtype=limit.dtype))
    # Few scores are above the threshold: compare the maxima of chunks first.
    whole = scores.shape[1] // CHUNK * CHUNK
    maxima = scores[:, :whole].reshape(len(scores), whole // CHUNK, CHUNK).max(axis=2)
    query, chunk = np.nonzero(maxima > thresholds[:, None])
    columns = np.concatenate([(chunk[:, None] * CHUNK + np.arange(CHUNK)).ravel(), _tail(scores, whole)])
    query = np.concatenate([np.repeat(query, CHUNK), np.repeat(np.arange(len(scores)), scores.shape[1] - whole)])
    above = scores[query, columns] > thresholds[query]
    return query[above], columns[above]


def _tail(scores: Array, whole: int) -> Array:
    """Return the columns after the last whole chunk, once per query."""
    return np.tile(np.arange(whole, scores.shape[1]), len(scores))


def to_float32(block: Any, result: NDArray[np.float32]) -> NDArray[np.float32]:
    """Write a matrix of finite float16 to ``result``, and return it; by bits, which takes a quarter of NumPy's time.

    Example:
        >>> to_float32(np.array([[0.5, -1.0, 6e-8]], dtype=np.float16), np.empty((1, 3), dtype=np.float32)).tolist()
        [[0.5, -1.0, 5.960464477539063e-08]]
    """
    if block.dtype != np.float16:
        result[:] = block
        return result
    halves = np.ascontiguousarray(block).view(np.int16)
    for start in range(0, len(halves), CACHED):
        bits = result[start : start + CACHED].view(np.int32)
        bits[:] = halves[start : start + CACHED]
        # Sign, exponent and fraction move to their places; the exponents of both formats differ by 112.
        np.left_shift(bits, 13, out=bits)
        np.bitwise_and(bits, SIGN_AND_VALUE, out=bits)
        np.multiply(bits.view(np.float32), SCALE, out=bits.view(np.float32))
    return result


def _merge(best: Array, rows: Array, query: Array, scores: Array, new_rows: Array) -> tuple[Array, Array]:
    """Return the best of the rows so far and of new ones; equal scores keep the lower row."""
    count, kept = best.shape
    all_queries = np.concatenate([np.repeat(np.arange(count), kept), query])
    all_scores, all_rows = np.concatenate([best.ravel(), scores]), np.concatenate([rows.ravel(), new_rows])
    order = np.lexsort((all_rows, -all_scores, all_queries))
    first = np.searchsorted(all_queries[order], np.arange(count))
    chosen = order[first[:, None] + np.arange(kept)]
    return all_scores[chosen], all_rows[chosen]


def rank(
    vectors: Any, queries: Array, candidates: Array, count: int, bias: Array | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scores (Q, count), without bias, and rows (Q, count) of the best candidates, computed in float64.

    A score depends on its query and its row alone. So equal vectors have equal scores, and keep the order of the rows.

    Args:
        candidates: rows (Q, C), each row once per query; -1 for none.
    """
    scores = np.empty(candidates.shape)
    for query, rows, row_scores in zip(queries.astype(np.float64), candidates, scores, strict=True):
        row_scores[:] = (vectors[np.maximum(rows, 0)].astype(np.float64) * query).sum(axis=1)
    ordered = scores if bias is None else scores + bias[np.maximum(candidates, 0)]
    ordered = np.where(candidates < 0, -np.inf, ordered)
    order = np.lexsort((candidates, -ordered), axis=1)[:, :count]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(candidates, order, axis=1)
