"""Search for regions: the images in which a single region fits a phrase best, and the region's box."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bifocal.search.collection import Collection


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


def search_regions(
    collection: Collection, score: Callable[[NDArray[np.float32]], NDArray[np.float32]], k: int = 10
) -> list[RegionHit]:
    """Return the ``k`` items whose best region has the highest score, best first; equal scores by their row.

    Args:
        collection: with regions.
        score: scores (R,) of regions (R, d), such as ``lambda vectors: vectors @ phrase``; a model's own scores are
            ``HeatmapModel.scores``.

    Raises:
        ValueError: the collection has no regions.
    """
    if collection.description.region_dimension is None:
        raise ValueError("the collection has no regions: its model has no localizer, or it was embedded without them")
    best: list[RegionHit] = []
    for row, item_id in enumerate(collection.ids):
        regions = collection.regions(row)
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
