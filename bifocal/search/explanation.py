"""Explanation of a search result: a heatmap of the query in the image."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.features import FeatureStore
from bifocal.localization import AutoLocalizer, rasterize
from bifocal.localization.base import Localizer
from bifocal.models.base import Model
from bifocal.models.batch import to_device


@dataclass(frozen=True)
class Heatmaps:
    """Heatmaps of results: ``search.text("a red star", explain=Heatmaps(model, features))``.

    Args:
        model: the model of the search.
        features: store with the images of the index and their boxes.
        localizer: computes the heatmap of a query; None for the localizer of the model's image encoder.
        size: pixels, side of the square to which the image is mapped.

    Raises:
        ValueError: the model's image encoder has no localizer.
    """

    model: Model
    features: FeatureStore
    localizer: Localizer | None = None
    size: int = 64

    def __post_init__(self) -> None:
        self._localizer()

    def __call__(self, image_id: str, query: NDArray[Any] | Tensor) -> Tensor:
        """Return the heatmap (size, size) of the query (d,), rows from the top; see ``rasterize``."""
        device = self.model.device
        vector = query if isinstance(query, Tensor) else torch.from_numpy(np.array(query))
        text = vector.float()[None].to(device)
        regions = to_device(self.features.gather(self.features.rows([image_id])), device)
        with torch.inference_mode():
            region_scores = self._localizer()(self.model.image_encoder, regions, text)
        scores, boxes = (part[0].float().cpu() for part in region_scores)
        present = ~scores.isneginf()
        return rasterize(scores[present], boxes[present], self.size, self.size)

    def _localizer(self) -> Localizer:
        localizer = (self.localizer or AutoLocalizer()).for_model(self.model)
        if localizer is None:
            name = type(self.model.image_encoder).__name__
            raise ValueError(f"a {name} has no localizer: search without explain")
        return localizer
