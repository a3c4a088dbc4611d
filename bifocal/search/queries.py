"""Queries by text, by image, and by image with words added or subtracted. Needs no torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bifocal.search.index import SearchHit, SearchIndex
from bifocal.search.vectors import unit_vectors

Array = NDArray[Any]
Explain = Callable[[str, Array], Any]
"""Explanation of a result from its item_id and the query (d,), such as ``Heatmaps(model, features)``."""


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


def _explained(hits: list[SearchHit], query: Array, explain: Explain | None) -> list[SearchHit]:
    return hits if explain is None else [replace(hit, explanation=explain(hit.item_id, query)) for hit in hits]
