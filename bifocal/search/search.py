"""One class answers a query: by words, by an image, by both, with filters, with keywords, per
group. Needs no torch."""

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image

from bifocal.onnx.heatmaps import HeatmapModel
from bifocal.search.calibration.calibration import DEPTH, UNREACHABLE
from bifocal.search.collection.collection import Collection
from bifocal.search.filters import GROUP_DEPTH, limit_groups, metadata_column
from bifocal.search.index.exact import scores, unit_vectors
from bifocal.search.index.index import SearchIndex
from bifocal.search.items import Items
from bifocal.search.keywords import FUSED, Keywords, fuse, has_texts
from bifocal.search.price import check_price, price
from bifocal.search.query import (
    EncodedQuery,
    Explain,
    Mode,
    Ranking,
    Results,
    SearchHit,
    SentenceEmbedder,
    encode_file,
    relevance,
)
from bifocal.search.regions import REGION_ITEMS, phrase_scores, search_regions

Array = NDArray[Any]


class Search:
    """Search in an index: ranks, fuses, corrects for hubness, and calibrates. Every interface of
    Bifocal uses it.

    ``SearchHit.score`` is the number that sorts the results. The hubness biases and the calibration
    of an index hold for sentences: a query by a single sentence has both, a query by images,
    vectors or sums has neither.

    Args:
        index: vectors of the items.
        embedder: encodes queries; it computed the vectors. None to search only with vectors.
        collection: with the items of the index, for the mode "regions"; None for none.
        localizer: of the model, for the mode "regions"; None for none.
        items: captions, metadata and files of the results; by default without files.

    Example:
        >>> search = Search(SearchIndex.of(["sea", "wood"], np.array([[1.0, 0.0], [0.0, 1.0]])))
        >>> [hit.id for hit in search(vector=np.array([0.6, 0.8]), k=2)]
        ['wood', 'sea']
    """

    def __init__(
        self,
        index: SearchIndex,
        embedder: SentenceEmbedder | None = None,
        collection: Collection | None = None,
        localizer: HeatmapModel | None = None,
        items: Items | None = None,
    ) -> None:
        self.index, self.embedder, self.collection, self.localizer = (
            index,
            embedder,
            collection,
            localizer,
        )
        self.items = items or Items(index.items)
        self._lock, self._has_keywords = threading.Lock(), False
        self._collection_rows: Array | None = None
        if (
            collection is not None
            and collection.description.region_dimension is not None
            and localizer is not None
            and 0 < len(index) <= REGION_ITEMS
        ):
            found = (collection.lookup.row(item_id) for item_id in index.ids)
            self._collection_rows = np.array([-1 if row is None else row for row in found])
            # The files are opened once: a new collection may replace them while this one is in use.
            collection.regions(int(self._collection_rows[np.flatnonzero(~index.removed)[0]]))

    @cached_property
    def modes(self) -> list[Mode]:
        """Modes that this index can be searched in."""
        possible: dict[Mode, bool] = {
            "vectors": True,
            "hybrid": has_texts(self.index.items),
            "regions": self._collection_rows is not None,
        }
        return [mode for mode, is_possible in possible.items() if is_possible]

    @cached_property
    def _files(self) -> pa.ChunkedArray | None:
        """Hash of the file of each item, or its id; None if no two items have the same file."""
        items = self.index.items
        if "sha256" not in items.column_names:
            return None
        hashes = items["sha256"]
        if pc.count_distinct(hashes).as_py() == len(hashes):
            return None  # before the constants, whose conversion imports pandas: half a second
        unknown = pc.or_(pc.equal(hashes, ""), pc.equal(hashes, "0" * 64))
        files = pc.if_else(unknown, items["item_id"], hashes)
        return files if pc.count_distinct(files).as_py() < len(files) else None

    def __call__(
        self,
        text: str | None = None,
        k: int = 10,
        *,
        offset: int = 0,
        like: str | None = None,
        image: Path | Image.Image | bytes | None = None,
        vector: Array | None = None,
        plus: Sequence[str] = (),
        minus: Sequence[str] = (),
        mode: Mode = "vectors",
        where: Mapping[str, Any] | None = None,
        group: str | None = None,
        per_group: int = 1,
        explain: Explain | None = None,
    ) -> Results:
        """Return the ``k`` items that fit a query best, without the first ``offset``.

        The parts of a query are added, and ``minus`` is subtracted.

        Args:
            text: a sentence.
            like: id of an item, which is not a result.
            image: an image file, its bytes, or an image of Pillow.
            vector: (d,), embedding of a query.
            plus, minus: sentences that are added and subtracted.
            mode: "vectors"; "hybrid" to fuse the ranking with BM25 over captions and metadata;
                "regions" to rank images by their best region. The last two need only ``text``.
            where: filter of the metadata, see ``bifocal.search.filters.matching_rows``.
            group: metadata column of whose values each has at most ``per_group`` results; no value
                is a value too.
            explain: computes the ``explanation`` of each result.

        Raises:
            ValueError: the query is empty or zero, the mode needs another query, ``k`` or
                ``offset`` is out of range, the filter or the group does not fit the metadata, or
                the index does not have the item.
        """
        images = [] if like is None else [self.index.vector(like)]
        images += [] if image is None else [self.embed_image(image)]
        images += [] if vector is None else [np.asarray(vector, dtype=np.float32)]
        sentences = [*([] if text is None else [text]), *plus, *minus]
        texts = self.embed(sentences) if sentences else np.zeros((0, 0), np.float32)
        exclude = [] if like is None else [like]
        query = EncodedQuery.of(
            text,
            plus,
            minus,
            images,
            texts,
            mode=mode,
            where=where,
            exclude=exclude,
            group=group,
            per_group=per_group,
            unknown=self.unknown_words(sentences, mode),
        )
        results = self.rank(query, k, offset)
        for hit in results:
            hit.path = self.items.file(hit.row)
            hit.explanation = None if explain is None else explain(hit.id, query.vector)
        return results

    def keywords(self) -> Keywords:
        """Return the words of the items; the first call checks them, or finds them."""
        with self._lock:
            if not self._has_keywords and self.index.keywords is not None:
                self.index.keywords.check()
            self.index.keywords = self.index.keywords or Keywords.of(self.index.items)
            self._has_keywords = True
            return self.index.keywords

    def price(self, query: EncodedQuery) -> int:
        """Return the steps of a query besides its vector; ``ValueError`` for too many."""
        words = self.keywords() if query.mode == "hybrid" else None
        return check_price(price(self.index.items, query, words), self.index.items)

    def keep_present(self, results: Results) -> Results:
        """Return results without items that were removed after their ranking."""
        if len(self.index) < results.items:
            results.results = [hit for hit in results if hit.id in self.index]
            results.found, results.items = results.found and len(results) > 0, len(self.index)
        return results

    def embed(self, sentences: Sequence[str]) -> Array:
        """Return the vectors (B, d) of B sentences."""
        if self.embedder is None:
            raise ValueError(
                "this search has no model to embed sentences: give it one, or search with vectors"
            )
        return self.embedder.embed_sentences(sentences)

    def unknown_words(self, sentences: Sequence[str], mode: Mode = "vectors") -> list[str]:
        """Return the words of sentences that the model does not know; the mode "hybrid" finds them
        by keywords.

        Raises:
            ValueError: the model knows no word of a sentence.
        """
        embedder: Any = self.embedder
        if mode == "hybrid" or not hasattr(embedder, "unknown_words"):
            return []
        return [
            word
            for sentence in filter(str.strip, sentences)
            for word in embedder.unknown_words(sentence)
        ]

    def embed_image(self, image: Path | Image.Image | bytes) -> Array:
        """Return the vector (d,) of an image.

        Raises:
            ValueError: the model does not read image files, or the file is not a complete image.
        """
        embedder: Any = self.embedder
        if "image" not in getattr(embedder, "inputs", ()):
            raise ValueError(
                "this model reads published features, not image files: search by a sentence"
            )
        vector: Array = embedder.embed_images([encode_file(image)])[0]
        return vector

    def rank(self, query: EncodedQuery, k: int = 10, offset: int = 0) -> Results:
        """Return the results of an encoded query; see ``__call__``."""
        _check_page(k, offset)
        if query.mode != "vectors" and query.sentence is None:
            raise ValueError(f"the mode {query.mode} needs text, and nothing else to search by")
        items, allowed = len(self.index), self.index.allowed(query.where, query.exclude)
        count = offset + k + 1  # one more says whether there is a further page
        if query.group is not None:
            groups, each = metadata_column(self.index.items, query.group), query.per_group
        elif self._files is None:
            return self._results(self._rank(query, count, allowed), query, k, offset, items)
        else:
            groups, each = self._files, 1
        asked = 4 * count
        while True:
            ranking = self._rank(query, min(asked, GROUP_DEPTH), allowed)
            values = groups.take(ranking.rows).to_pylist()
            kept = limit_groups(values, each)
            if len(kept) >= count or len(ranking.rows) < asked:
                break
            asked *= 4
        results = self._results(ranking.take(kept), query, k, offset, items)
        if query.group is None:
            for hit, place in zip(results, kept[offset : offset + k], strict=True):
                known = zip(ranking.rows, values, strict=True)
                same = (row for row, value in known if value == values[place])
                hit.copies = [self.index.ids[row] for row in same if row != hit.row]
        return results

    def batch(
        self,
        vectors: Array,
        k: int = 10,
        *,
        sentences: bool = False,
        where: Mapping[str, Any] | None = None,
        exclude: Sequence[str] = (),
        offset: int = 0,
    ) -> list[Results]:
        """Return the results of several vectors (Q, d), as one matrix product.

        Args:
            sentences: whether the vectors are embeddings of sentences, for which biases and
                calibration hold.
            where: see ``__call__``.
            exclude: ids of items to leave out.
        """
        _check_page(k, offset)
        items, allowed = len(self.index), self.index.allowed(where, exclude)
        query = EncodedQuery(np.zeros(0), "" if sentences else None)
        rankings = self._nearest(vectors, offset + k, allowed, sentences)
        return [self._results(ranking, query, k, offset, items) for ranking in rankings]

    def _rank(self, query: EncodedQuery, count: int, allowed: Array | None) -> Ranking:
        if query.mode == "hybrid":
            return self._fused(query, count, allowed)
        if query.mode == "regions":
            return self._by_region(query, count, allowed)
        (ranking,) = self._nearest(query.vector[None], count, allowed, query.sentence is not None)
        return ranking

    def _nearest(
        self, vectors: Array, count: int, allowed: Array | None, sentences: bool
    ) -> list[Ranking]:
        """Return the ranking of each vector, of at least ``count`` rows."""
        index, calibration = self.index, self.index.calibration if sentences else None
        queries = unit_vectors(vectors, index.description.dimension)
        count = count if calibration is None else max(count, DEPTH)
        total = len(index) if allowed is None else int(np.count_nonzero(allowed))
        rows, found = index.nearest(queries, count, allowed, corrected=sentences)
        if calibration is None:
            return [
                Ranking(row, score, total=total) for row, score in zip(rows, found, strict=True)
            ]
        references = calibration.references(queries)
        known, present = (
            calibration.probabilities(found, None, references),
            calibration.found(found, references),
        )
        parts = zip(rows, found, known, present.tolist(), strict=True)
        return [
            Ranking(row, score, probability, None, is_found, total)
            for row, score, probability, is_found in parts
        ]

    def _fused(self, query: EncodedQuery, count: int, allowed: Array | None) -> Ranking:
        """Fuse the rankings by the vector and by the words of a sentence."""
        by_words = self.keywords().search(str(query.sentence), FUSED, allowed)
        if not query.vector.any():  # a bag of words of which the model knows none
            fused = fuse([by_words.tolist()])
            return Ranking(by_words[:count], np.array(list(fused.values())[:count]))
        index, unit = self.index, unit_vectors(query.vector[None], self.index.description.dimension)
        by_vector, best = index.nearest(unit, FUSED, allowed, corrected=True)
        fused = fuse([by_vector[0].tolist(), by_words.tolist()])
        rows, probabilities = np.array(list(fused)[:count], dtype=np.int64), None
        if index.calibration is not None:
            similarities = scores(index.vectors, unit, rows[None], index.bias)
            references = index.calibration.references(unit)
            probabilities = index.calibration.probabilities(similarities, best, references)[0]
        return Ranking(rows, np.array(list(fused.values())[:count]), probabilities)

    def _by_region(self, query: EncodedQuery, count: int, allowed: Array | None) -> Ranking:
        if self._collection_rows is None or self.collection is None or self.localizer is None:
            raise ValueError(
                f"this index cannot be searched by regions, but by {', '.join(self.modes)}"
            )
        rows = self._collection_rows if allowed is None else self._collection_rows[allowed]
        searched = np.zeros(len(self.collection), dtype=bool)
        searched[rows[rows >= 0]] = True
        hits = search_regions(
            self.collection, partial(phrase_scores, self.localizer, query.vector), count, searched
        )
        found = np.array(
            [self.index.row(self.collection.ids[hit.row]) for hit in hits], dtype=np.int64
        )
        return Ranking(
            found, np.array([hit.score for hit in hits]), boxes=[hit.box for hit in hits]
        )

    def _results(
        self, ranking: Ranking, query: EncodedQuery, k: int, offset: int, items: int
    ) -> Results:
        """Return the results ``offset`` to ``offset + k`` of a ranking."""
        calibration, page = self.index.calibration, slice(offset, offset + k)
        rows, found = ranking.rows[page].tolist(), ranking.scores[page].tolist()
        unknown, probabilities = [None] * len(rows), ranking.probabilities
        known = unknown if probabilities is None else probabilities[page].tolist()
        boxes = unknown if ranking.boxes is None else ranking.boxes[page]
        certain = UNREACHABLE if calibration is None else calibration.certain
        judged = query.sentence is not None and query.mode == "vectors" and calibration is not None
        absent = judged and not ranking.found
        hits = [
            SearchHit(
                **self.items.facts(row),
                score=score,
                probability=probability,
                box=box,
                relevance=relevance(probability, certain, absent),
            )
            for row, score, probability, box in zip(rows, found, known, boxes, strict=True)
        ]
        for hit, row in zip(hits, rows, strict=True):
            hit.row = row
        more = max(ranking.total, len(ranking.rows)) > offset + k
        results = Results(hits, offset > 0 or not absent, items, more, "", list(query.unknown))
        if judged:
            results.relevance = (hits[0].probability if hits else None) or 0.0
        return results


def _check_page(k: int, offset: int) -> None:
    if k < 1 or offset < 0:
        raise ValueError(f"k is {k} and offset {offset}: expected at least 1 and 0")
