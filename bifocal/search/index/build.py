"""Builds an index of a collection, and measures its recall against exact search and its latency."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bifocal.draws import drawn_rows
from bifocal.hubness.bank import HubnessBank
from bifocal.progress import log_line
from bifocal.search.collection.collection import Collection
from bifocal.search.index.approximate import ApproximateIndex, choose_factory
from bifocal.search.index.exact import rank, unit_vectors
from bifocal.search.index.files import IndexDescription, Measured
from bifocal.search.index.index import SearchIndex
from bifocal.version import install

if TYPE_CHECKING:
    import pandas as pd

BATCH = 65_536
Array = NDArray[Any]
K = 10
STANDARD_ERRORS = 1.645 * 2**0.5
"""Distance of a mean recall from the wanted recall, in standard errors. As many other queries then
reach the wanted recall too, in 95 % of cases: 1.645 is the 95 % quantile of the normal
distribution, and the difference of two means has twice the variance of one."""
EXACT = "exact"
CANDIDATES = (5, 10, 20)
"""Candidates for each result that are tried, the first two that reach the wanted recall."""
MORE_EFFORT = 1.25
"""Factor of the effort that fewer candidates are worth."""


def index_of_collection(collection: Collection, bank: HubnessBank | None) -> SearchIndex:
    """Return an exact index of a collection, whose tombstones are removed items; ``bank`` gives it
    biases."""
    description = IndexDescription(
        collection.dimension,
        len(collection),
        collection.model,
        collection.description.preprocessing,
        None if bank is None else bank.reference,
    )
    bias: NDArray[np.float32] | None = None
    if bank is not None:
        biases = [bank.image_bias(vectors) for vectors in collection.vectors.batches(BATCH)]
        bias = np.concatenate([np.zeros(0, dtype=np.float32), *biases])
    return SearchIndex(
        collection.facts,
        collection.vectors,
        bias,
        description,
        removed=collection.deleted,
        known=collection.lookup,
    )


@dataclass(frozen=True)
class HeldOutCaptions:
    """Captions that were held out of the training of a model, as users would write queries, and
    their images."""

    texts: list[str]
    item_ids: list[str]

    @classmethod
    def sample(
        cls, captions: "pd.DataFrame", count: int, max_words: int, seed: int
    ) -> "HeldOutCaptions":
        """Return at most ``count`` random captions of at most ``max_words`` words; of any length if
        none is short."""
        short = captions[[len(str(text).split()) <= max_words for text in captions["text"]]]
        kept = short if len(short) else captions
        names = kept["image_id"].astype(str) + " " + kept["text"].astype(str)
        sampled = kept.iloc[drawn_rows(names, count, seed)]
        return cls(sampled["text"].tolist(), sampled["image_id"].astype(str).tolist())

    def of(self, index: SearchIndex) -> NDArray[np.bool_]:
        """Return for each caption whether the index has its image."""
        known = set(index.ids)
        return np.array([item_id in known for item_id in self.item_ids], dtype=bool)


@dataclass(frozen=True)
class IndexSettings:
    """How an index is built."""

    factory: str = (
        "auto"  # see ``choose_factory``; "exact"; or an ``index_factory`` string of faiss
    )
    memory_mb: float = 1200.0  # of a search, megabytes of 10^6 bytes; read with "auto"
    latency_ms: float = 20.0  # of a query on one core; read with "auto"
    recall: float = 0.95  # least recall@10 against exact search, see ``lower_bound``
    seed: int = 0  # of the vectors that train an approximate index


def build_index(exact: SearchIndex, settings: IndexSettings, queries: Array) -> SearchIndex:
    """Return an index of the items of an exact one that are not removed; ``queries`` (Q, d) choose
    its effort."""
    kept = np.flatnonzero(~exact.removed)
    vectors = exact.vectors if len(kept) == len(exact.ids) else exact.vectors[kept]
    bias = None if exact.bias is None else exact.bias[kept]
    index = SearchIndex(
        exact.items.take(kept), vectors, bias, replace(exact.description, factory=None, effort=None)
    )
    dimension = index.description.dimension
    factory: str | None = None if settings.factory == EXACT else settings.factory
    if factory == "auto":
        factory = choose_factory(len(index), dimension, settings.memory_mb, settings.latency_ms)
        if factory is not None and find_spec("faiss") is None:
            log_line(
                "exact search, which is slow in so many items; for a faster one: "
                f"{install('faiss')}"
            )
            factory = None
    if factory is not None:
        index.approximate = ApproximateIndex.build(vectors, factory, settings.seed)
        index.description = replace(index.description, factory=factory)
        index.description = _tuned(index, settings.recall, queries)
    return index


def _tuned(index: SearchIndex, wanted: float, queries: Array) -> IndexDescription:
    """Return the description with the effort and the candidates that reach the wanted recall."""
    units = unit_vectors(queries, index.description.dimension)
    truth = index.nearest(units, K, corrected=True, exact=True)[0]
    found = dict[int, int | None]()
    for candidates in CANDIDATES:
        try:
            found[candidates] = _least_effort(index, candidates, wanted, units, truth)
        except ValueError:
            if candidates == CANDIDATES[-1] and not found:
                raise
        if len(found) == 2:
            break
    (few, effort), *others = found.items()
    if others and (effort or 0) > MORE_EFFORT * (others[0][1] or 0):
        few, effort = others[0]
    return replace(index.description, candidates=few, effort=effort)


def _least_effort(
    index: SearchIndex, candidates: int, wanted: float, units: Array, truth: Array
) -> int | None:
    assert index.approximate is not None

    def recalls(effort: int | None) -> NDArray[np.float64]:
        assert index.approximate is not None
        rows = index.approximate.search(units, min(K * candidates, len(index)), effort)
        return recalls_at(truth, rank(index.vectors, units, rows, K, index.bias)[1])

    found, below = np.zeros(1), 0
    for effort in list[int | None](index.approximate.efforts()) or [None]:
        found = recalls(effort)
        if lower_bound(found) >= wanted:
            return None if effort is None else _refined(recalls, wanted, below, effort)
        below = effort or 0
    if found.mean() >= wanted:
        return below or None
    raise ValueError(
        f"{index.description.factory} finds {found.mean():.3f} of the exact ten best items "
        f"with the greatest effort, expected {wanted}: give more memory, or another factory"
    )


def _refined(
    recalls: Callable[[int], NDArray[np.float64]], wanted: float, below: int, effort: int
) -> int:
    """Return the least effort above ``below`` whose lower bound of the recall is the wanted one;
    else ``effort``."""
    while effort - below > 1:
        middle = (effort + below) // 2
        if lower_bound(recalls(middle)) >= wanted:
            effort = middle
        else:
            below = middle
    return effort


def lower_bound(recalls: NDArray[np.float64]) -> float:
    """Return the mean recall less ``STANDARD_ERRORS``: the mean would favor an effort that is good
    by chance."""
    return float(recalls.mean() - STANDARD_ERRORS * recalls.std() / len(recalls) ** 0.5)


def recall_at(truth: Array, found: Array) -> float:
    """Return the mean share of the rows ``truth`` (Q, k) that are among the rows ``found`` (Q,
    k)."""
    return float(recalls_at(truth, found).mean())


def recalls_at(truth: Array, found: Array) -> NDArray[np.float64]:
    """Return for each query (Q,) the share of the rows ``truth`` (Q, k) that are among the rows
    ``found`` (Q, k)."""
    if not truth.size:
        return np.ones(1)
    return np.array([len(np.intersect1d(a, b)) / len(a) for a, b in zip(truth, found, strict=True)])


def measure(index: SearchIndex, queries: Array, directory: Path) -> Measured:
    """Return recall@10 and latency of an index on this process's threads, one query at a time."""
    units = unit_vectors(queries, index.description.dimension)
    truth = index.nearest(units, K, corrected=True, exact=True)[0]
    seconds, rows = [], []
    for query in units:
        start = time.perf_counter()
        rows.append(index.nearest(query[None], K, corrected=True)[0])
        seconds.append(time.perf_counter() - start)
    p50, p99 = (1000 * np.percentile(seconds or [0.0], [50, 99])).tolist()
    size = sum(file.stat().st_size for file in directory.iterdir() if file.suffix != ".json")
    return Measured(
        recall_at(truth, np.concatenate([truth[:0], *rows])), size, len(units), p50, p99
    )
