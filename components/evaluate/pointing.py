"""Pointing at the phrases of a split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.localization import peak_points
from bifocal.localization.base import Localizer
from bifocal.metrics import accuracy_by, center_baseline, pointing_hits, random_baseline
from bifocal.metrics.bootstrap import bootstrap_means, percentile_interval
from components.evaluate.pointer import BATCH, Pointer, asked

CHOSEN_ON = 5000
"""Phrases, at most, that k is chosen on."""


@dataclass(frozen=True)
class Pointing:
    """The phrases of a split, and where the model points for each.

    Attributes:
        phrases: rows of ``asked``.
        sizes: (P, 2), width and height of each phrase's image, pixels.
        points: (P, 2), x y in pixels.
        hits: (P,) bool.
    """

    phrases: pd.DataFrame
    sizes: NDArray[np.float64]
    points: NDArray[np.float64]
    hits: NDArray[np.bool_]

    def report(self, resamples: int, seed: int) -> dict[str, Any]:
        """Accuracy in percent, its interval over images, and the baselines; of all phrases and of each category."""
        boxes = list(self.phrases["boxes"])
        image = torch.from_numpy(pd.factorize(self.phrases["image_id"])[0].astype(np.int64))
        totals = torch.zeros(int(image.max()) + 1, 1, dtype=torch.float64)
        totals.index_add_(0, image, torch.from_numpy(100.0 * self.hits).unsqueeze(1))
        counts = image.bincount().unsqueeze(1)
        low, high = percentile_interval(bootstrap_means(totals, counts, resamples, seed)[:, 0], 0.95)
        values = {
            "accuracy": self.hits.astype(np.float64),
            "centre": center_baseline(self.sizes, boxes).astype(np.float64),
            "random": random_baseline(self.sizes, boxes),
        }
        found = {name: 100 * float(value.mean()) for name, value in values.items()}
        return {**found, "low": low, "high": high, "phrases": len(self.hits), "categories": self._categories(values)}

    def _categories(self, values: dict[str, NDArray[np.float64]]) -> dict[str, dict[str, float]]:
        """The same of each category, the most frequent first; a phrase of several counts in each of them."""
        members = [
            (category, place)
            for place, names in enumerate(self.phrases["category"])
            if isinstance(names, str)
            for category in names.split("/")
        ]
        if not members:
            return {}
        groups, places = [category for category, _ in members], [place for _, place in members]
        found = {name: accuracy_by(value[places], groups) for name, value in values.items()}
        order = sorted(set(groups), key=lambda category: (-groups.count(category), category))
        return {
            category: {name: rates[category] for name, rates in found.items()} | {"phrases": groups.count(category)}
            for category in order
        }


def point(pointer: Pointer, dataset: Dataset, rows: Sequence[int] | None = None) -> Pointing:
    """Point at the phrases of ``dataset``, or at those of some rows."""
    phrases = asked(dataset) if rows is None else asked(dataset).iloc[list(rows)]
    sizes = dataset.images.set_index("image_id").loc[phrases["image_id"], ["width", "height"]].to_numpy(np.float64)
    found = [
        peak_points(pointer.locate(phrases.iloc[start : start + BATCH])).numpy()
        for start in range(0, len(phrases), BATCH)
    ]
    spots = np.concatenate(found).astype(np.float64) * sizes
    return Pointing(phrases, sizes, spots, pointing_hits(spots, list(phrases["boxes"])))


def choose_k(
    pointer: Pointer, localizers: Mapping[int, Localizer], dataset: Dataset, seed: int
) -> tuple[Pointer, dict[str, Any]]:
    """The pointer with the k of BEAN's heatmap that points best at phrases of ``dataset``, of the least among equals.

    Args:
        localizers: by their k.
        dataset: the validation split.

    Returns:
        and ``{"k": ..., "chosen_on": phrases, "accuracy_of_k": {k: percent}}``.
    """
    drawn = np.random.default_rng(seed).permutation(len(dataset.phrases))[:CHOSEN_ON]
    rows = sorted(drawn.tolist())
    candidates = sorted(localizers)
    pointers = {k: replace(pointer, localizer=localizers[k]) for k in candidates}
    found = {k: 100 * float(point(one, dataset, rows).hits.mean()) for k, one in pointers.items()}
    best = max(candidates, key=lambda k: (found[k], -k))
    return pointers[best], {"k": best, "chosen_on": len(rows), "accuracy_of_k": {str(k): found[k] for k in candidates}}
