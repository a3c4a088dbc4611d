"""Why an image was found: where in it the query is."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bifocal.batch import to_device
from bifocal.features import FeatureStore
from bifocal.localization import rasterize
from bifocal.localization.base import Localizer
from bifocal.models.base import Model


@dataclass(frozen=True)
class Heatmaps:
    """Heatmaps of results: ``search.by_text("a red star", explain=Heatmaps(model, features))``.

    Args:
        model: the one that is searched with.
        features: that hold the images of the index, with boxes.
        localizer: what makes a heatmap of a query; the model's own if not given.
        side: pixels of the square that is the whole image.

    Raises:
        ValueError: the model has no localization of its own.
    """

    model: Model
    features: FeatureStore
    localizer: Localizer | None = None
    side: int = 64

    def __post_init__(self) -> None:
        self._localizer()

    def __call__(self, image_id: str, query: Tensor) -> Tensor:
        """(side, side), rows from the top: how much each place speaks of the query (d,); see ``rasterize``."""
        device = self.model.device
        regions = to_device(self.features.gather(self.features.rows([image_id])), device)
        with torch.inference_mode():
            located = self._localizer()(self.model.image_encoder, regions, query.to(device).unsqueeze(0))
        scores, boxes = (part[0].float().cpu() for part in located)
        present = ~scores.isneginf()
        return rasterize(scores[present], boxes[present], self.side, self.side)

    def _localizer(self) -> Localizer:
        encoder = self.model.image_encoder
        found = self.localizer or encoder.localizer()
        if found is None:
            raise ValueError(f"a {type(encoder).__name__} has no localization of its own: search without explain")
        return found
