"""Calibration without captions: by names of things, each searched with and without the items that are like it."""

from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.search.calibration.calibration import DEPTH, Calibration
from bifocal.search.calibration.fitting import MIN_PAIRS, fit_level, results_without
from bifocal.search.index.index import SearchIndex
from bifocal.search.vectors import unit_vectors

Array = NDArray[Any]
LIKE = 3
"""Names that an item is like; chosen among 1 to 3 by written queries on 100 to 2,000 photographs."""
LEAST_ITEMS = 200
"""Items from which a collection is calibrated: with 100 photographs, a quarter of the right results gets a notice."""
BATCH = 4096


def read_names() -> list[str]:
    """Return the first name of each of the 1,000 classes of ImageNet, from WordNet."""
    return files(__package__).joinpath("names.txt").read_text(encoding="utf-8").splitlines()


def calibrate_by_names(index: SearchIndex, names: Array, queries: Array) -> Calibration | None:
    """Fit a calibration on names in place of held-out captions; None for too few items or names.

    An item is like the ``LIKE`` names whose queries have the highest scores, after the scores of each name have been
    standardized over all items. The query of such a name is searched in the whole collection, as a match, and without
    the items that are like it, as an absent concept. A level is fitted on the best score and the query's reference: its
    best cosine with a name. Where it is high, the query asks for a thing that the encoder knows, and a match has a
    higher score than for a whole sentence.

    Args:
        names: vectors (K, d) of the names.
        queries: vectors (K, d) of their queries, which are longer: a name's own vector is no reference for others.
    """
    if len(index) < LEAST_ITEMS:
        return None
    names, queries = unit_vectors(names), unit_vectors(queries)
    best = _best_names(index, queries)
    own = np.unique(best[best >= 0])
    if len(own) < MIN_PAIRS:
        return None
    live = ~index.removed
    scores = index.nearest(queries[own], DEPTH, live if index.removed.any() else None, corrected=True)[1]
    without, _ = results_without(index, queries[own], (np.flatnonzero((best == name).any(axis=1)) for name in own))
    references = (queries[own] @ names.T).max(axis=1)
    relevant = np.arange(2 * len(own)) < len(own)
    level = fit_level(np.concatenate([scores, without]), relevant, own, references)
    return None if level is None else Calibration(**asdict(level), names=names.astype(np.float16))


def _best_names(index: SearchIndex, queries: Array) -> NDArray[np.int64]:
    """Return the names (N, ``LIKE``) that each item is like; -1 for removed items."""
    live = np.flatnonzero(~index.removed)
    batches = [live[start : start + BATCH] for start in range(0, len(live), BATCH)]

    def scores(rows: Array) -> Array:
        return np.asarray(index.vectors[rows], np.float32) @ queries.T

    total, squares = np.zeros(len(queries)), np.zeros(len(queries))
    for rows in batches:
        block = scores(rows).astype(np.float64)
        total, squares = total + block.sum(axis=0), squares + (block**2).sum(axis=0)
    mean = total / len(live)
    deviation = np.sqrt(np.maximum(squares / len(live) - mean**2, 1e-12))
    best = np.full((len(index.ids), LIKE), -1, dtype=np.int64)
    for rows in batches:
        best[rows] = np.argpartition((mean - scores(rows)) / deviation, LIKE, axis=1)[:, :LIKE]
    return best
