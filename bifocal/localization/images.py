"""Heatmaps of phrases in images that are no part of a dataset."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from bifocal.export.backbone import exportable_extractor
from bifocal.features import RegionBatch
from bifocal.localization.auto import AutoLocalizer
from bifocal.localization.rasterize import rasterize
from bifocal.models import load_model


class ImageLocalizer:
    """The localizer of a trained model, and the extractor of its features.

    Args:
        artifacts: folder with the artifacts ``embedding`` and ``features`` of the model.

    Raises:
        ValueError: the model has no localizer, or its features cannot be computed from a single image.
    """

    def __init__(self, artifacts: Path) -> None:
        self.model = load_model(artifacts / "embedding")
        localizer = AutoLocalizer().for_model(self.model)
        extractor = exportable_extractor(artifacts / "features")
        if localizer is None:
            raise ValueError(
                f"a {type(self.model.image_encoder).__name__} has no localizer: train another encoder, such as "
                "SMILEEncoder"
            )
        if extractor is None:
            raise ValueError(f"the features of {artifacts / 'features'} cannot be computed from a single image")
        self.localizer, self.extractor = localizer, extractor

    def heatmap(self, image: Image.Image, text: NDArray[np.float32], side: int) -> NDArray[np.floating]:
        """Return the heatmap (side, side) of a phrase, over the image stretched to a square.

        Args:
            text: vector (d,) of the phrase.
        """
        with torch.inference_mode():
            (regions,) = self.extractor.extract([self.extractor.preprocess(image.convert("RGB"))])
            assert regions.boxes is not None
            # Rounded as in the store, which the model was trained on.
            features = regions.features.half().float().unsqueeze(0)
            mask = torch.ones(features.shape[:2], dtype=torch.bool)
            batch = RegionBatch(features, mask, regions.boxes.float().unsqueeze(0))
            scores = self.localizer(self.model.image_encoder, batch, torch.from_numpy(text).unsqueeze(0))
        heatmap: NDArray[np.floating] = rasterize(scores.scores[0], scores.boxes[0], side, side).numpy()
        return heatmap
