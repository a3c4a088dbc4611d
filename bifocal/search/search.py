"""Queries by text, by image, and by image with words added or subtracted. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bifocal.search.groups import group_column, limit_groups
from bifocal.search.hits import Explain, SearchHit
from bifocal.search.index.exact import rank
from bifocal.search.index.index import SearchIndex
from bifocal.search.keywords import Keywords, fuse
from bifocal.search.vectors import unit_vectors

Array = NDArray[Any]
FUSED = 100
"""Results of each ranking that the fusion reads, at least."""


class SentenceEmbedder(Protocol):
    """A model that embeds sentences: an ``Embedder`` of ONNX graphs, or a ``TorchEmbedder``."""

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """Return the embeddings (B, d) of B sentences."""
        ...


@dataclass(frozen=True)
class Searcher:
    """Search in an index with the model that computed its vectors.

    Args:
        model: embeds sentences.
        index: vectors of the items by the same model.
    """

    model: SentenceEmbedder
    index: SearchIndex

    def embed(self, sentence: str) -> NDArray[np.float32]:
        """Return the embedding (d,) of a sentence, of unit norm."""
        vector: NDArray[np.float32] = unit_vectors(self.model.embed_sentences([sentence]))[0]
        return vector

    def text(
        self,
        sentence: str,
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        explain: Explain | None = None,
    ) -> list[SearchHit]:
        """Return the ``k`` items that fit ``sentence`` best, in the order corrected by the biases of the index.

        Args:
            where, offset: see ``SearchIndex.search``.
            explain: computes the ``explanation`` of each result.
        """
        query = self.embed(sentence)
        (hits,) = self.index.search(query[None], k, where=where, offset=offset, corrected=True)
        return _explained(hits, query, explain)

    def hybrid(
        self, sentence: str, k: int = 10, *, where: Mapping[str, Any] | None = None, offset: int = 0
    ) -> list[SearchHit]:
        """Return ``k`` items that fit ``sentence`` by their vector or by words of their captions and metadata.

        The rankings of both searches are fused, see ``bifocal.search.keywords``.

        Args:
            where, offset: see ``SearchIndex.search``.
        """
        hits = fused_hits(self.index, self.keywords, self.embed(sentence), sentence, offset + k, where=where)
        return hits[offset:]

    @cached_property
    def keywords(self) -> Keywords:
        """BM25 over captions and metadata, built when it is first used."""
        return Keywords(self.index.items)

    def per_group(
        self, sentence: str, group: str, each: int = 1, k: int = 10, *, where: Mapping[str, Any] | None = None
    ) -> list[SearchHit]:
        """Return the best ``k`` items of which at most ``each`` have the same value of a metadata column.

        Items without a value are a group too.

        Args:
            group: name of the metadata, without ``meta.``.
            where: see ``SearchIndex.search``.

        Raises:
            ValueError: there is no such metadata.
        """
        groups, query = group_column(self.index.items, group), self.embed(sentence)[None]

        def ranking(count: int) -> list[SearchHit]:
            return self.index.search(query, count, where=where, corrected=True)[0]

        return limit_groups(ranking, groups, each, k)

    def image(
        self,
        image: str | Array,
        plus: Sequence[str] = (),
        minus: Sequence[str] = (),
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        explain: Explain | None = None,
    ) -> list[SearchHit]:
        """Return the ``k`` items most similar to ``image``, with the words of ``plus`` added and ``minus`` subtracted.

        Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6.2 and figure 5: the query is
        the sum of the embeddings, those of ``minus`` with a negative sign.

        Args:
            image: id of an item of the index, which is excluded from the results; or the embedding (d,) of any image.
            where, offset: see ``SearchIndex.search``.
            explain: computes the ``explanation`` of each result.
        """
        by_id = isinstance(image, str)
        query = self.index.vector(image) if isinstance(image, str) else np.asarray(image, dtype=np.float32)
        for sentence in plus:
            query = query + self.embed(sentence)
        for sentence in minus:
            query = query - self.embed(sentence)
        exclude = [str(image)] if by_id else []
        (hits,) = self.index.search(query[None], k, where=where, offset=offset, exclude=exclude)
        return _explained(hits, query, explain)


def fused_hits(
    index: SearchIndex,
    keywords: Keywords,
    query: Array,
    sentence: str,
    count: int,
    *,
    where: Mapping[str, Any] | None = None,
    exclude: Sequence[str] = (),
) -> list[SearchHit]:
    """Return ``count`` items that fit a sentence by their vector or by words, see ``Searcher.hybrid``.

    Args:
        keywords: of the items of the index.
        query: embedding (d,) of the sentence.
        where, exclude: see ``SearchIndex.search``.
    """
    depth = max(FUSED, count)
    (by_vector,) = index.search(query[None], depth, where=where, exclude=exclude, corrected=True)
    ranked = [hit.row for hit in by_vector]
    by_words = keywords.search(sentence, depth, index.allowed(where, exclude)).tolist()
    known = {hit.row: hit for hit in by_vector}
    return [known.get(row) or _hit(index, row, query, by_vector) for row in fuse([ranked, by_words])[:count]]


def _hit(index: SearchIndex, row: int, query: Array, best: Sequence[SearchHit]) -> SearchHit:
    """Return an item that only its words found.

    Args:
        best: results of the search by the vector.
    """
    scores, _ = rank(index.vectors, unit_vectors(query[None]), np.array([[row]]), 1, None)
    probability = None
    if index.calibration is not None:
        best_rows, best_scores = np.array([[hit.row for hit in best]]), np.array([[hit.score for hit in best]])
        corrected = index.with_bias(np.array([[row]]), scores), index.with_bias(best_rows.astype(int), best_scores)
        probability = float(index.calibration.probabilities(*corrected)[0, 0])
    return SearchHit(row, index.ids[row], float(scores[0, 0]), probability)


def _explained(hits: list[SearchHit], query: Array, explain: Explain | None) -> list[SearchHit]:
    return hits if explain is None else [replace(hit, explanation=explain(hit.item_id, query)) for hit in hits]
