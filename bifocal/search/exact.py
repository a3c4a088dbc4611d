"""The rows of highest score of a matrix, in blocks of a memory-mapped file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BLOCK = 16_384
"""Rows per matrix product."""
QUERIES = 256
"""Queries per matrix product."""
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
    for start in range(0, len(vectors), BLOCK):
        block, block_rows = vectors[start : start + BLOCK], np.arange(start, min(start + BLOCK, len(vectors)))
        if allowed is not None and not (chosen := allowed[start : start + BLOCK]).all():
            block, block_rows = block[chosen], block_rows[chosen]
        if not len(block):
            continue
        scores = queries @ np.asarray(block, dtype=np.float32).T
        if bias is not None:
            scores += bias[block_rows].astype(np.float32)
        query, column = _above(scores, best[:, -1], kept)
        best, rows = _merge(best, rows, query, scores[query, column], block_rows[column])
    return rows


def _above(scores: Array, thresholds: Array, kept: int) -> tuple[Array, Array]:
    """Return the query and the column of each score that may be among the ``kept`` best."""
    if np.isneginf(thresholds).any() and scores.shape[1] > kept:  # too few rows so far: each query's best of the block
        columns = np.argpartition(-scores, kept - 1, axis=1)[:, :kept]
        limit = np.take_along_axis(scores, columns, axis=1).min(axis=1)
        thresholds = np.maximum(thresholds, np.nextafter(limit, -np.inf, dtype=limit.dtype))
    query, column = np.nonzero(scores > thresholds[:, None])
    return query, column


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
