"""Observations of images and queries of some days, to compare with the training reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.monitoring.arrivals import Arrivals, unusable
from bifocal.monitoring.probes import Probes, embed, nothing_found, search_probes
from bifocal.monitoring.queries import query_languages, sample, unknown_words
from bifocal.monitoring.significance import Count
from bifocal.monitoring.units import Labels, image_groups
from bifocal.onnx.encoders import Embedder
from bifocal.search.collection.collection import Collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.query import Array


@dataclass(frozen=True)
class Observations:
    """Images and queries of some days.

    Attributes:
        images: (n, D), vectors of a sample of the images.
        queries: (q, D), vectors of a sample of the queries, without queries of unknown words only.
        unusable: images that were rejected, or are very small.
        unknown_words: queries with a word that the model has not learned; None if it reads subwords.
        languages: share of the queries by language; empty if they are unknown.
        nothing_found: queries without a relevant result or a known word; None if the index is not calibrated.
        probes: outcomes of the probes; None without probes.
        groups: (n, 3), burst, day and album of each image, see ``image_groups``; None if they are unknown.
    """

    images: Array
    queries: Array
    unusable: Count
    unknown_words: Count | None
    languages: Mapping[str, float]
    nothing_found: Count | None
    probes: Probes | None
    groups: Labels | None = None


@dataclass(frozen=True)
class Observer:
    """Observes a model with its collection and its index."""

    model: Embedder
    collection: Collection
    index: SearchIndex
    seed: int = 0

    def observe(
        self, arrivals: Arrivals, queries: Sequence[str], pairs: pd.DataFrame | None, images: int, sentences: int
    ) -> Observations:
        """Return observations of new images, user queries and probes, in samples of at most these sizes."""
        rows = self.sampled_rows(arrivals, images)
        chosen = sample(queries, sentences, self.seed)
        unknown, known = unknown_words(self.model, chosen)
        vectors = embed(self.model, known) if known else np.zeros((0, self.collection.dimension), np.float32)
        nothing = nothing_found(self.index, vectors)
        return Observations(
            images=np.asarray(self.collection.vectors[rows], np.float32),
            queries=vectors,
            unusable=unusable(self.collection, arrivals),
            unknown_words=unknown,
            languages=query_languages(chosen, self.seed),
            nothing_found=None if nothing is None else Count(nothing + len(chosen) - len(known), len(chosen)),
            probes=None if pairs is None else search_probes(self.model, self.index, pairs),
            groups=image_groups(self.collection, arrivals.rows)[np.isin(arrivals.rows, rows)],
        )

    def sampled_rows(self, arrivals: Arrivals, images: int) -> NDArray[np.int64]:
        """Return the rows of at most ``images`` random items."""
        rows = np.random.default_rng(self.seed).permutation(np.array(arrivals.rows, dtype=np.int64))
        return np.sort(rows[:images])
