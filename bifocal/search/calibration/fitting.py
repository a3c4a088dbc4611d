"""Fits a calibration on captions that were held out of the training of a model, or else on names of
things."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.search.calibration.calibration import (
    DEPTH,
    UNREACHABLE,
    Calibration,
    Level,
    reference_scores,
)
from bifocal.search.calibration.logistic import fit_logistic, probabilities
from bifocal.search.index.exact import unit_vectors
from bifocal.search.index.index import SearchIndex

Array = NDArray[Any]
SPARE = 100
"""Results beyond these that are searched at once: most sentences describe fewer items."""
FALSE_POSITIVES = 0.05
"""Share of queries without a match that may get a result."""
MIN_PAIRS, FOLDS, BINS = 20, 5, 10
CERTAIN = 0.8
"""Required share of relevant results among those called found."""
Limit = tuple[float, float]
"""Share of queries without a match that may reach a threshold, and the confidence that new queries
keep it."""
RELEVANCE, PRESENCE = (FALSE_POSITIVES, 0.95), (0.03, 0.5)
LIKE = 3
"""Names that an item is like; chosen among 1 to 3 by written queries on 100 to 2,000
photographs."""
MIN_ITEMS = 200
"""Items from which names calibrate a collection: with 100 photographs, a quarter of the right
results gets a notice."""
BATCH = 4096


class TooFewPairs(ValueError):
    """Held-out pairs do not suffice to calibrate a model."""


def calibrate(
    index: SearchIndex,
    queries: Array,
    item_ids: Sequence[str],
    relevant_rows: Sequence[Array] | None = None,
    near_rows: Iterable[Array] | None = None,
) -> Calibration:
    """Fit a calibration on held-out pairs: each query is searched in the whole collection, and
    without the items that it describes (``relevant_rows``, by default its own). A missing item
    counts as an error.

    The presence is fitted on searches without ``near_rows``, the items that come near the query;
    None for no presence. All searches of the whole collection have a match there. Its threshold is
    not cautious: captions leave out what images show, so some of the searches without a match have
    one, and a notice on a right result costs more.
    """
    if len(queries) < MIN_PAIRS or len(set(item_ids)) < FOLDS or len(index) < DEPTH + 2:
        raise TooFewPairs(
            f"{len(queries)} pairs of {len(set(item_ids))} items and {len(index)} items in the "
            f"collection: calibration needs {MIN_PAIRS} pairs of {FOLDS} items and {DEPTH + 2} "
            "items"
        )
    own = np.array([index.row(item_id) for item_id in item_ids])
    described = list(own[:, None]) if relevant_rows is None else relevant_rows
    scores, relevant = first_results(index, queries, described)
    fitted = fit_level(scores, relevant, own)
    if fitted is None:
        raise TooFewPairs(
            f"{relevant.sum()} of {len(queries)} held-out captions find an item first that "
            "they describe, too few to calibrate with"
        )
    presence = None
    if near_rows is not None:
        count = len(queries)
        scores[count:], enough = results_without(index, queries, near_rows)
        if enough.sum() >= MIN_PAIRS and len(np.unique(own[enough])) >= FOLDS:
            both = np.concatenate([enough, enough])
            matches = np.arange(both.sum()) < enough.sum()
            presence = fit_level(scores[both], matches, own[enough], limit=PRESENCE)
    level, certain = fitted
    return Calibration(**asdict(level), certain=certain, presence=presence and presence[0])


def fit_level(
    scores: Array,
    relevant: Array,
    own: Array,
    references: Array | None = None,
    limit: Limit = RELEVANCE,
) -> tuple[Level, float] | None:
    """Fit a level on searches with and without a match, see also ``least_certain``; None if some
    folds have no relevant result.

    ``scores`` (2 Q, 10) and ``relevant`` (2 Q,) are as from ``first_results``; ``own`` (Q,) are the
    queries' items. With ``references`` (Q,), they take the place of the margin. For ``limit`` see
    ``allowed_share``.
    """
    best = scores[:, 0]
    second = (
        best - reference_scores(scores)
        if references is None
        else np.concatenate([references, references])
    )
    variables = np.stack([best, second], axis=1)
    both = np.concatenate([own, own])
    fold_of = np.unique(both, return_inverse=True)[1] % FOLDS
    folds = [(np.flatnonzero(fold_of != k), np.flatnonzero(fold_of == k)) for k in range(FOLDS)]
    if not all(relevant[fitted].any() for fitted, _ in folds):
        return None
    without = np.arange(len(relevant)) >= len(own)
    predicted, found = np.zeros(len(relevant)), np.zeros(len(relevant), dtype=bool)
    for others, held_out in folds:
        weights = fit_logistic(variables[others], relevant[others])
        predicted[held_out] = probabilities(weights, variables[held_out])
        fitted = others[without[others]]
        allowed = allowed_share(len(np.unique(both[fitted])), limit)
        found[held_out] = predicted[held_out] >= _threshold(weights, variables[fitted], allowed)
    weights = fit_logistic(variables, relevant)
    intercept, score, weight = map(float, weights)
    level = Level(
        intercept=intercept,
        score=score,
        margin=weight if references is None else 0.0,
        reference=0.0 if references is None else weight,
        threshold=_threshold(
            weights, variables[without], allowed_share(len(np.unique(own)), limit)
        ),
        error=calibration_error(predicted, relevant),
        false_positive_rate=float(found[without].mean()),
        recall=float(found[relevant].mean()),
        queries=len(own),
    )
    return level, least_certain(predicted[~without], relevant[~without])


def least_certain(predicted: Array, relevant: Array) -> float:
    """Return the lowest probability above which the share of relevant results (n,), minus one
    standard error, is at least ``CERTAIN``; ``UNREACHABLE`` if fewer than ``MIN_PAIRS`` results
    are above it."""
    order, counts = np.argsort(-predicted), np.arange(1, len(predicted) + 1)
    shares = np.cumsum(relevant[order]) / counts
    lower = shares - np.sqrt(shares * (1 - shares) / counts)
    enough = np.flatnonzero((lower >= CERTAIN) & (counts >= MIN_PAIRS))
    return float(predicted[order[enough[-1]]]) if len(enough) else UNREACHABLE


def allowed_share(items: int, limit: Limit) -> float:
    """Return the largest share of false positives among held-out queries whose upper bound (Clopper
    and Pearson, 1934) is the share of a limit with its confidence.
    """
    share, confidence = limit
    counts = np.arange(1, items + 1)
    steps = np.log((items - counts + 1) / counts * share / (1 - share))
    binomial = np.exp(items * np.log1p(-share) + np.cumsum([0.0, *steps]))
    # One false positive more than this number would be as likely with a higher rate.
    likely = int(np.searchsorted(np.cumsum(binomial), 1 - confidence))
    return max(likely - 1, 0) / items


def _threshold(weights: Array, variables: Array, allowed: float) -> float:
    """Return the lowest probability that at most an allowed share of results (n, 2) without a match
    reaches."""
    found = probabilities(weights, variables)
    return float(np.quantile(found, 1 - allowed, method="higher")) + 1e-9


def first_results(
    index: SearchIndex, queries: Array, relevant_rows: Sequence[Array]
) -> tuple[Array, NDArray[np.bool_]]:
    """Return scores (2 Q, 10) of the searches with and without relevant items, and whether the
    first result is one."""
    units = unit_vectors(queries, index.description.dimension)
    live = ~index.removed
    rows, scores = index.nearest(
        units, DEPTH + SPARE, live if index.removed.any() else None, corrected=True
    )
    first = np.array(
        [rows[number, 0] in relevant for number, relevant in enumerate(relevant_rows)], dtype=bool
    )
    without, _ = results_without(index, queries, relevant_rows, (rows, scores))
    return np.concatenate([scores[:, :DEPTH], without]), np.concatenate(
        [first, np.zeros_like(first)]
    )


def results_without(
    index: SearchIndex,
    queries: Array,
    removed_rows: Iterable[Array],
    best: tuple[Array, Array] | None = None,
) -> tuple[Array, NDArray[np.bool_]]:
    """Return the scores (Q, 10) of searches without some items, and whether enough items are left
    to fill them."""
    units = unit_vectors(queries, index.description.dimension)
    scores, enough = np.full((len(units), DEPTH), -1.0), np.zeros(len(units), dtype=bool)
    for number, removed in enumerate(removed_rows):
        found = np.zeros(0) if best is None else best[1][number, ~np.isin(best[0][number], removed)]
        if len(found) < DEPTH:  # most of the best results are removed, or there are few items
            others = ~index.removed
            others[removed] = False
            found = index.nearest(units[number : number + 1], DEPTH, others, corrected=True)[1][0]
        enough[number] = len(found) >= DEPTH
        if len(found):
            scores[number] = found[np.minimum(np.arange(DEPTH), len(found) - 1)]
    return scores, enough


def calibration_error(probabilities: Array, relevant: Array) -> float:
    """Return the expected calibration error in ten bins of equal width (Guo et al., ICML 2017, eq.
    (3))."""
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    gaps = [abs((probabilities - relevant)[bins == bin_].sum()) for bin_ in range(BINS)]
    return float(sum(gaps) / len(probabilities))


def read_names() -> list[str]:
    """Return the first name of each of the 1,000 classes of ImageNet, from WordNet."""
    return files(__package__).joinpath("names.txt").read_text(encoding="utf-8").splitlines()


def calibrate_by_names(index: SearchIndex, names: Array, queries: Array) -> Calibration | None:
    """Fit a calibration on names in place of held-out captions; None for too few items or names.

    An item is like the ``LIKE`` names whose queries have the highest scores, after the scores of
    each name have been standardized over all items. The query of such a name is searched in the
    whole collection, as a match, and without the items that are like it, as an absent concept. A
    level is fitted on the best score and the query's reference: its best cosine with a name. Where
    it is high, the query asks for a thing that the encoder knows, and a match has a higher score
    than for a whole sentence.

    Args:
        names: vectors (K, d) of the names.
        queries: vectors (K, d) of their queries, which are longer: a name's own vector is no
            reference for others.
    """
    if len(index) < MIN_ITEMS:
        return None
    names, queries = unit_vectors(names), unit_vectors(queries)
    best = _best_names(index, queries)
    own = np.unique(best[best >= 0])
    if len(own) < MIN_PAIRS:
        return None
    live = ~index.removed
    scores = index.nearest(
        queries[own], DEPTH, live if index.removed.any() else None, corrected=True
    )[1]
    without, _ = results_without(
        index, queries[own], (np.flatnonzero((best == name).any(axis=1)) for name in own)
    )
    references = (queries[own] @ names.T).max(axis=1)
    relevant = np.arange(2 * len(own)) < len(own)
    fitted = fit_level(np.concatenate([scores, without]), relevant, own, references)
    if fitted is None:
        return None
    # No result is found for certain: names do not say whether it is right.
    return Calibration(**asdict(fitted[0]), names=names.astype(np.float16))


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
