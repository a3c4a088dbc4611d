"""Heatmaps of every category in every image of a split, summarized by maxima and masks."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.datasets.formats.masks import decode_mask
from bifocal.localization import peak_points, rasterize
from bifocal.metrics import mask_iou, mask_mean_ap, mask_mean_ap_of_overlaps
from bifocal.models.phrase_locator import PhraseLocator, embed_texts

IMAGES_PER_BATCH = 32
SIDE = 64
"""Cells along each side of a mask."""
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Candidates for the value from which on a heatmap, scaled to [0, 1], belongs to its mask."""


@dataclass(frozen=True)
class ObjectMaps:
    """Maxima (C, N) of the heatmaps of C categories in N images, with their points and overlaps.

    ``points`` (C, N, 2) are in pixels. ``overlaps`` (T, C, N) are the IoU of each threshold's mask with the true mask,
    0 without one. ``boxes`` are the true boxes (n, 4) by category and image.
    """

    scores: NDArray[np.float64]
    points: NDArray[np.float64]
    overlaps: NDArray[np.float64]
    boxes: list[list[NDArray[np.float64]]]

    def mask_metrics(self, threshold: float) -> dict[str, float]:
        """Return the mAP of masks at a threshold, in percent: our protocol, and that of BEAN's published code."""
        present = np.array([[len(truth) > 0 for truth in row] for row in self.boxes])
        overlaps = self.overlaps[THRESHOLDS.index(threshold)]
        ranked, by_overlap = mask_mean_ap(self.scores, overlaps, present), mask_mean_ap_of_overlaps(overlaps, present)
        values = {**ranked, **{f"{name}_by_overlap": value for name, value in by_overlap.items()}}
        return {name: 100 * value for name, value in values.items()}


def category_phrases(dataset: Dataset) -> pd.DataFrame:
    """Return the phrases that equal the name of their category and belong to no caption, as in COCO and VOC."""
    phrases = dataset.phrases
    return phrases[phrases["caption_id"].isna() & (phrases["category"] == phrases["phrase"])]


def localize_objects(locator: PhraseLocator, dataset: Dataset) -> ObjectMaps:
    """Search every category of ``dataset`` in every image of it."""
    objects, images = category_phrases(dataset), dataset.images
    names = sorted(set(objects["category"]))
    columns = (objects[name] for name in ("category", "image_id", "boxes", "mask"))
    known: dict[tuple[str, str], tuple[NDArray[np.float64], str | None]] = {
        (name, image): (boxes.astype(np.float64), mask) for name, image, boxes, mask in zip(*columns, strict=True)
    }
    absent = (np.empty((0, 4)), None)
    truth = [[known.get((name, image), absent) for image in images["image_id"]] for name in names]
    texts = embed_texts(locator.model, locator.vectorizer, names)
    sizes = images[["width", "height"]].to_numpy(np.int64)
    maxima, positions = np.empty((len(names), len(images))), np.empty((len(names), len(images), 2))
    overlaps = np.zeros((len(THRESHOLDS), len(names), len(images)))
    for start in range(0, len(images), IMAGES_PER_BATCH):
        rows = range(start, min(start + IMAGES_PER_BATCH, len(images)))
        vectors = locator.encode(list(images["image_id"].iloc[start : start + IMAGES_PER_BATCH]))
        for category, text in enumerate(texts):
            regions = locator.score(vectors, text.expand(len(rows), -1))
            maxima[category, rows] = regions.scores.amax(dim=1).numpy()
            positions[category, rows] = peak_points(regions).numpy() * sizes[rows]
            for index, row in enumerate(rows):
                boxes, encoded = truth[category][row]
                if len(boxes):
                    mask = true_mask(encoded, boxes, *sizes[row].tolist())
                    present = regions.scores[index].isfinite()
                    heatmap = rasterize(regions.scores[index][present], regions.boxes[index][present], SIDE, SIDE)
                    overlaps[:, category, row] = [mask_iou(heatmap, mask, threshold) for threshold in THRESHOLDS]
    return ObjectMaps(maxima, positions, overlaps, [[boxes for boxes, _ in row] for row in truth])


def true_mask(encoded: str | None, boxes: NDArray[np.floating], width: int, height: int) -> Tensor:
    """Return the cells (SIDE, SIDE) whose center an object covers: its segmentation, else its boxes (n, 4)."""
    x, y = ((np.arange(SIDE) + 0.5) / SIDE * size for size in (width, height))
    if isinstance(encoded, str):
        mask = decode_mask(encoded, width, height)[np.ix_(y.astype(np.int64), x.astype(np.int64))]
    else:
        across = (boxes[:, 0:1] <= x) & (x < boxes[:, 2:3])
        down = (boxes[:, 1:2] <= y) & (y < boxes[:, 3:4])
        mask = np.asarray((down[:, :, None] & across[:, None, :]).any(axis=0))
    return torch.from_numpy(mask)
