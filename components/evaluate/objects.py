"""Objects of known categories: every category is looked for in every image of a split, by its name."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.localization import peak_points, rasterize
from bifocal.localization.base import RegionScores
from bifocal.metrics import mask_iou, mask_mean_ap, point_mean_ap
from components.evaluate.pointer import Pointer, embed_texts

IMAGES, SIDE = 32, 64
"""Images that are looked at together, and cells along each side of a mask."""
LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Of a heatmap scaled to [0, 1], that bound its mask: what the level is chosen among."""
OVERLAPS = ("IoU@0.3", "IoU@0.4", "IoU@0.5")


@dataclass(frozen=True)
class Searched:
    """What C heatmaps of each of N images say.

    Attributes:
        scores: (C, N), their peaks.
        points: (C, N, 2), where these are, pixels.
        overlaps: (L, C, N), IoU of the mask of each level with the true one; 0 where there is none.
        boxes: of each category and image, (n, 4), n 0 where the image has none.
    """

    scores: NDArray[np.float64]
    points: NDArray[np.float64]
    overlaps: NDArray[np.float64]
    boxes: list[list[NDArray[np.float64]]]

    def masks(self, level: float) -> dict[str, float]:
        """mAP of segmentation at a level, in percent."""
        present = np.array([[len(truth) > 0 for truth in row] for row in self.boxes])
        found = mask_mean_ap(self.scores, self.overlaps[LEVELS.index(level)], present)
        return {name: 100 * value for name, value in found.items()}


def named_objects(dataset: Dataset) -> pd.DataFrame:
    """The phrases that are the name of their category and stand in no sentence, as COCO's and VOC's readers give them.

    Of such a dataset every object of a category is known, so that one which is found elsewhere is wrong.
    """
    phrases = dataset.phrases
    return phrases[phrases["caption_id"].isna() & (phrases["category"] == phrases["phrase"])]


def object_figures(pointer: Pointer, dataset: Dataset, validation: Dataset | None) -> dict[str, Any]:
    """mAP of points and of masks, in percent; a true mask is the boxes of the category.

    Args:
        validation: where the masks' level is chosen, by the sum of the three mAP; 0.5 if it is None or has no object.
    """
    objects = named_objects(dataset)
    level, chosen_on = 0.5, 0
    if validation is not None and len(named_objects(validation)):
        there = search(pointer, validation)
        level = max(LEVELS, key=lambda level: sum(there.masks(level)[name] for name in OVERLAPS))
        chosen_on = len(validation.images)
    found = search(pointer, dataset)
    sizes = dataset.images[["width", "height"]].to_numpy(np.float64)
    centre = np.broadcast_to(sizes / 2, found.points.shape)
    return {
        "point_mAP": 100 * point_mean_ap(found.scores, found.points, found.boxes),
        "centre_mAP": 100 * point_mean_ap(0 * found.scores, centre, found.boxes),
        **found.masks(level),
        "level": level,
        "chosen_on": chosen_on,
        "categories": objects["category"].nunique(),
        "objects": int(objects["boxes"].map(len).sum()),
    }


def search(pointer: Pointer, dataset: Dataset) -> Searched:
    """Look for every category of ``dataset`` in every image of it."""
    objects, images = named_objects(dataset), dataset.images
    names = sorted(set(objects["category"]))
    columns = (objects[name] for name in ("category", "image_id", "boxes"))
    known: dict[tuple[str, str], NDArray[np.float64]] = {
        (name, image): truth.astype(np.float64) for name, image, truth in zip(*columns, strict=True)
    }
    boxes = [[known.get((name, image), np.empty((0, 4))) for image in images["image_id"]] for name in names]
    texts = embed_texts(pointer.model, pointer.reader, names)
    sizes = images[["width", "height"]].to_numpy(np.float64)
    scores, spots = np.empty((len(names), len(images))), np.empty((len(names), len(images), 2))
    overlaps = np.zeros((len(LEVELS), len(names), len(images)))
    for start in range(0, len(images), IMAGES):
        rows = range(start, min(start + IMAGES, len(images)))
        seen = pointer.see(list(images["image_id"].iloc[start : start + IMAGES]))
        for number, text in enumerate(texts):
            with torch.inference_mode():
                heat = pointer.localizer.score(seen, text.expand(len(rows), -1))
            located = RegionScores(*(part.float().cpu() for part in heat))
            scores[number, rows] = located.scores.amax(dim=1).numpy()
            spots[number, rows] = peak_points(located).numpy() * sizes[rows]
            for place, row in enumerate(rows):
                if len(boxes[number][row]):
                    heatmap = _heatmap(located.scores[place], located.boxes[place])
                    truth = _mask(boxes[number][row] / np.tile(sizes[row], 2))
                    overlaps[:, number, row] = [mask_iou(heatmap, truth, level) for level in LEVELS]
    return Searched(scores, spots, overlaps, boxes)


def _heatmap(scores: Tensor, boxes: Tensor) -> Tensor:
    here = scores.isfinite()
    return rasterize(scores[here], boxes[here], SIDE, SIDE)


def _mask(boxes: NDArray[np.float64]) -> Tensor:
    """The cells whose centres lie in one of the boxes, which are relative to the image's width and height."""
    places = torch.from_numpy(boxes).float()
    # Beside them one box without area, whose score is what no box holds.
    scores = torch.cat([torch.ones(len(places)), torch.zeros(1)])
    return rasterize(scores, torch.cat([places, torch.zeros(1, 4)]), SIDE, SIDE) > 0
