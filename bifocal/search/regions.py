"""Search for regions: the images in which a single region fits a phrase best, and the region's box."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bifocal.search.collection.collection import Collection
from bifocal.serving.heatmaps import HeatmapModel, dot_products, largest_dimensions

Score = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Scores (R,) of the regions (R, d) of an image."""


@dataclass(frozen=True)
class RegionHit:
    """One result.

    Attributes:
        row: row of the item in the collection.
        score: of the region for the phrase.
        box: x0 y0 x1 y1 of the region, pixels of the original image.
    """

    row: int
    item_id: str
    score: float
    box: tuple[float, float, float, float]


def phrase_scores(model: HeatmapModel, phrase: NDArray[np.float32]) -> Score:
    """Return the scores of regions for a phrase that can be compared between images.

    They are those of the localizer, if these depend on a region alone; else dot products with the phrase, because
    ``SmoothedActivations`` standardizes the scores of each image.

    Args:
        model: localizer of the model that embedded the collection.
        phrase: (d,), embedding of the phrase.
    """
    if model.name == "largest_dimensions":
        return lambda vectors: largest_dimensions(vectors, phrase, **model.arguments)
    return lambda vectors: dot_products(vectors, phrase)


def search_regions(
    collection: Collection, score: Score, k: int = 10, allowed: NDArray[np.bool_] | None = None
) -> list[RegionHit]:
    """Return the ``k`` items whose best region has the highest score, best first; equal scores by their row.

    Args:
        collection: with regions.
        score: of regions, such as ``lambda vectors: vectors @ phrase``, or ``phrase_scores``.
        allowed: (N,), items of the collection that may be returned; None for all.

    Raises:
        ValueError: the collection has no regions.
    """
    if collection.description.region_dimension is None:
        raise ValueError("the collection has no regions: its model has no localizer, or it was embedded without them")
    best: list[RegionHit] = []
    for row, item_id in enumerate(collection.ids):
        regions = collection.regions(row) if allowed is None or allowed[row] else None
        if regions is None or not len(regions.vectors):
            continue
        scores = score(regions.vectors.astype(np.float32))
        region = int(np.argmax(scores))
        x0, y0, x1, y1 = regions.boxes[region].tolist()
        best.append(RegionHit(row, item_id, float(scores[region]), (x0, y0, x1, y1)))
        if len(best) > 2 * k:
            best = _best(best, k)
    return _best(best, k)


def _best(hits: list[RegionHit], k: int) -> list[RegionHit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.row))[:k]
