"""Points that a model predicts for phrases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.localization.heatmaps import peak_points
from bifocal.localization.phrase_locator import BATCH, PhraseLocator, phrases_in_context
from bifocal.metrics import pointing_hits


@dataclass(frozen=True)
class PointingResult:
    """Phrases, the sizes of their images, the predicted points in pixels, and whether they are hits."""

    phrases: pd.DataFrame
    sizes: NDArray[np.float64]
    points: NDArray[np.float64]
    hits: NDArray[np.bool_]


def point_at_phrases(
    locator: PhraseLocator, dataset: Dataset, rows: Sequence[int] | None = None, min_area: float = 0.0
) -> PointingResult:
    """Predict a point for the phrases of ``dataset``, or for the phrases in ``rows``.

    Phrases are left out if the rectangle around their boxes covers less than ``min_area`` of the image.

    Raises:
        ValueError: no phrase is left.
    """
    phrases = phrases_in_context(dataset)
    if rows is not None:
        phrases = phrases.iloc[list(rows)]
    sizes = dataset.images.set_index("image_id").loc[phrases["image_id"], ["width", "height"]].to_numpy(np.float64)
    large = _areas(list(phrases["boxes"])) >= min_area * sizes.prod(axis=1)
    if not large.any():
        raise ValueError(f"no phrase has boxes that cover {min_area:g} of the image: lower min_area")
    phrases, sizes = phrases[large], sizes[large]
    batches = [
        peak_points(locator.locate(phrases.iloc[start : start + BATCH])).numpy()
        for start in range(0, len(phrases), BATCH)
    ]
    predicted = np.concatenate(batches).astype(np.float64) * sizes
    return PointingResult(phrases, sizes, predicted, pointing_hits(predicted, list(phrases["boxes"])))


def _areas(boxes: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Return the area of the smallest rectangle around the boxes (n, 4) of each phrase."""
    around = np.array([[*truth[:, :2].min(axis=0), *truth[:, 2:].max(axis=0)] for truth in boxes], dtype=np.float64)
    areas: NDArray[np.float64] = (around[:, 2:] - around[:, :2]).prod(axis=1)
    return areas
