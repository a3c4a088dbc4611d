"""Rankings of the items of an index: by vectors, by vectors and words, and by regions."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.search.collection.collection import Collection
from bifocal.search.filters import PREFIX
from bifocal.search.groups import group_column, limit_groups
from bifocal.search.hits import SearchHit
from bifocal.search.index.index import SearchIndex
from bifocal.search.keywords import Keywords
from bifocal.search.regions import phrase_scores, search_regions
from bifocal.search.search import fused_hits
from bifocal.serving.heatmaps import HeatmapModel
from bifocal.serving.service.schema import Mode

FUSED = 1001
"""Results of each ranking that the fusion reads; a constant depth, so that pages are parts of one order."""
GROUP_DEPTH = 10_000
"""Results among which the best of each group are searched."""
REGION_ITEMS = 50_000
"""Largest collection whose regions are searched: each search reads all of them."""


@dataclass(frozen=True)
class Query:
    """A search.

    Attributes:
        vector: (d,).
        sentence: the sentence, if the query is nothing else; None for sums with images and other sentences. Biases,
            probabilities and words are meant for sentences.
        mode: "hybrid" and "regions" need a sentence.
        where: condition of each metadata column.
        exclude: ids of items that are no result.
        group: metadata column of whose values each has at most ``per_group`` results; None for no limit.
    """

    vector: NDArray[Any]
    sentence: str | None = None
    mode: Mode = "vectors"
    where: Mapping[str, Any] = field(default_factory=dict)
    exclude: Sequence[str] = ()
    group: str | None = None
    per_group: int = 1


@dataclass(frozen=True)
class RegionSearchHit(SearchHit):
    """A result with the box of its best region: x0 y0 x1 y1, as fractions of width and height."""

    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)


class Rankings:
    """Searches in an index and in the regions of its collection.

    Args:
        index: of the items.
        collection: with the items of the index.
        localizer: of the model; None without one.

    Attributes:
        modes: that can be searched by.
    """

    def __init__(self, index: SearchIndex, collection: Collection, localizer: HeatmapModel | None) -> None:
        self.index, self._collection, self._localizer = index, collection, localizer
        self._keywords: Keywords | None = None
        self._lock = threading.Lock()
        self.modes: list[Mode] = ["vectors"]
        if find_spec("bm25s") is not None and _has_texts(index.items):
            self.modes.append("hybrid")
        has_regions = collection.description.region_dimension is not None and len(index) <= REGION_ITEMS
        if localizer is not None and has_regions and len(index):
            self.modes.append("regions")
            rows = {item_id: row for row, item_id in enumerate(collection.ids)}
            self._rows = np.array([rows.get(item_id, -1) for item_id in index.ids])
            # The files are opened once: a new collection may replace them while this one is in use.
            collection.regions(int(self._rows[np.flatnonzero(~index.removed)[0]]))

    def search(self, query: Query, k: int, offset: int = 0) -> list[SearchHit]:
        """Return ``k`` items that fit a query best, without the first ``offset``.

        Raises:
            ValueError: the filter or the group does not fit the metadata.
        """
        functions: Mapping[Mode, Callable[[Query, int], list[SearchHit]]] = {
            "vectors": self._by_vector, "hybrid": self._by_words, "regions": self._by_region,
        }  # fmt: skip
        rank = functions[query.mode]
        if query.group is None:
            return rank(query, offset + k)[offset:]
        groups = group_column(self.index.items, query.group)
        hits = limit_groups(lambda count: rank(query, min(count, GROUP_DEPTH)), groups, query.per_group, offset + k)
        return hits[offset:]

    def _by_vector(self, query: Query, count: int) -> list[SearchHit]:
        of_sentence = query.sentence is not None
        (hits,) = self.index.search(
            query.vector[None], count, where=query.where, exclude=query.exclude, corrected=of_sentence
        )
        return hits if of_sentence else [replace(hit, probability=None) for hit in hits]

    def _by_words(self, query: Query, count: int) -> list[SearchHit]:
        assert query.sentence is not None
        with self._lock:  # two first searches build it once
            self._keywords = self._keywords or Keywords(self.index.items)
        hits = fused_hits(
            self.index, self._keywords, query.vector, query.sentence, max(count, FUSED), where=query.where,
            exclude=query.exclude,
        )  # fmt: skip
        return hits[:count]

    def _by_region(self, query: Query, count: int) -> list[SearchHit]:
        assert self._localizer is not None
        allowed = self.index.allowed(query.where, query.exclude)
        rows = self._rows if allowed is None else self._rows[allowed]
        searched = np.zeros(len(self._collection), dtype=bool)
        searched[rows[rows >= 0]] = True
        score = phrase_scores(self._localizer, query.vector)
        hits = search_regions(self._collection, score, count, searched)
        sizes = self._collection.items.select(["width", "height"])
        found: list[SearchHit] = []
        for hit in hits:
            width, height = (max(1, sizes[name][hit.row].as_py()) for name in ("width", "height"))
            x0, y0, x1, y1 = hit.box
            box = (x0 / width, y0 / height, x1 / width, y1 / height)
            found.append(RegionSearchHit(self.index.row(hit.item_id), hit.item_id, hit.score, box=box))
        return found


def _has_texts(items: pa.Table) -> bool:
    """Return whether an item has a caption or a text among its values."""
    if "captions" in items.column_names and (pc.sum(pc.list_value_length(items["captions"])).as_py() or 0) > 0:
        return True
    columns = [column for column in items.schema if column.name.startswith(PREFIX)]
    return any(pa.types.is_string(column.type) for column in columns)
