"""Observations of images and queries of some days, to compare with the training reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bifocal.draws import drawn, drawn_rows
from bifocal.monitoring.albums import Labels, image_groups
from bifocal.monitoring.arrivals import Arrivals
from bifocal.onnx.encoders import Embedder
from bifocal.search.collection.collection import Collection
from bifocal.search.index.exact import unit_vectors
from bifocal.search.index.index import SearchIndex
from bifocal.search.query import Array, SentenceEmbedder
from bifocal.search.search import Search

BATCH = 64
"""Sentences that are embedded at once."""


@dataclass(frozen=True)
class Count:
    """Number of entries that have a property, ``hits`` of ``total``."""

    hits: int
    total: int

    @property
    def share(self) -> float:
        """Share in [0, 1]; 0 without entries."""
        return self.hits / self.total if self.total else 0.0


@dataclass(frozen=True)
class Observations:
    """Images and queries of some days.

    Attributes:
        images: (n, D), vectors of a sample of the images.
        queries: (q, D), vectors of a sample of the queries, without queries of unknown words only.
        unknown_words: queries with a word that the model has not learned; None if it reads
            subwords.
        nothing_found: queries without a relevant result or a known word; None if the index is not
            calibrated.
        groups: (n, 2), day and album of each image, see ``image_groups``; None if they are unknown.
    """

    images: Array
    queries: Array
    unknown_words: Count | None
    nothing_found: Count | None
    groups: Labels | None = None


@dataclass(frozen=True)
class Observer:
    """Observes a model with its collection and its index."""

    model: Embedder
    collection: Collection
    index: SearchIndex
    seed: int = 0

    def observe(
        self, arrivals: Arrivals, queries: Sequence[str], images: int, sentences: int
    ) -> Observations:
        """Return observations of new images and user queries, in samples of at most these sizes."""
        rows = self.sampled_rows(arrivals, images)
        chosen = drawn(queries, sentences, self.seed)
        unknown, known = unknown_words(self.model, chosen)
        vectors = (
            embed(self.model, known)
            if known
            else np.zeros((0, self.collection.dimension), np.float32)
        )
        nothing = nothing_found(self.index, vectors)
        return Observations(
            images=np.asarray(self.collection.vectors[rows], np.float32),
            queries=vectors,
            unknown_words=unknown,
            nothing_found=None
            if nothing is None
            else Count(nothing + len(chosen) - len(known), len(chosen)),
            groups=image_groups(self.collection, rows.tolist()),
        )

    def sampled_rows(self, arrivals: Arrivals, images: int) -> NDArray[np.int64]:
        """Return the rows of at most ``images`` random items."""
        rows, ids = np.array(arrivals.rows, dtype=np.int64), self.collection.ids
        return np.sort(rows[drawn_rows([ids[row] for row in rows], images, self.seed)])


def unknown_words(model: Embedder, queries: Sequence[str]) -> tuple[Count | None, list[str]]:
    """Count the queries with an unknown word, None if the model knows all words; return those with
    a known word."""
    known = model.sentences.known
    if known("") is None:
        return None, list(queries)
    words = [list((known(query) or {}).values()) for query in queries]
    unknown = Count(sum(not all(are_known) for are_known in words), len(queries))
    return unknown, [
        query for query, are_known in zip(queries, words, strict=True) if any(are_known)
    ]


def embed(model: SentenceEmbedder, sentences: Sequence[str]) -> NDArray[np.float32]:
    """Return the unit vectors (n, d) of at least one sentence."""
    batches = [sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH)]
    return unit_vectors(np.concatenate([model.embed_sentences(batch) for batch in batches]))


def nothing_found(index: SearchIndex, queries: Array) -> int | None:
    """Return for how many queries (n, d) no result is relevant; None if the index is not
    calibrated."""
    if index.calibration is None:
        return None
    return sum(not results.found for results in Search(index).batch(queries, 1, sentences=True))
