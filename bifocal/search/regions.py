"""Search for regions: the images in which a single region fits a phrase best, and the region's
box."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.heatmaps import HeatmapModel, dot_products, largest_dimensions
from bifocal.search.collection.collection import Collection
from bifocal.search.query import Box

Vectors = NDArray[np.float32]
Score = Callable[[Vectors], Vectors]
REGION_ITEMS = 50_000
"""Largest collection whose regions are searched: each search reads all of them."""


class RegionHit(NamedTuple):
    """The best region of an item of the collection; the box is relative to the image's width and
    height."""

    row: int
    score: float
    box: Box


def phrase_scores(model: HeatmapModel, phrase: Vectors, vectors: Vectors) -> Vectors:
    """Return scores (R,) that compare images: dot products for ``SmoothedActivations``, which
    normalizes per image."""
    if model.name == "largest_dimensions":
        return largest_dimensions(vectors, phrase, **model.arguments)
    return dot_products(vectors, phrase)


def search_regions(
    collection: Collection, score: Score, k: int, allowed: NDArray[np.bool_] | None = None
) -> list[RegionHit]:
    """Return the ``k`` items whose best region has the highest score, best first; equal scores by
    their row."""
    if collection.description.region_dimension is None:
        raise ValueError(
            "the collection has no regions: its model has no localizer, or it was embedded "
            "without them"
        )
    best: list[RegionHit] = []
    for row in range(len(collection)) if allowed is None else np.flatnonzero(allowed).tolist():
        regions = collection.regions(row)
        if regions is None or not len(regions.vectors):
            continue
        scores = score(regions.vectors.astype(np.float32))
        region = int(np.argmax(scores))
        best.append(RegionHit(row, float(scores[region]), tuple(regions.boxes[region].tolist())))
        if len(best) > 2 * k:
            best = _best(best, k)
    sizes = collection.items.select(["width", "height"])
    return [
        hit._replace(box=_relative(hit.box, sizes.slice(hit.row, 1).to_pylist()[0]))
        for hit in _best(best, k)
    ]


def _best(hits: list[RegionHit], k: int) -> list[RegionHit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.row))[:k]


def _relative(box: Box, size: dict[str, int]) -> Box:
    width, height = max(1, size["width"]), max(1, size["height"])
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height
