"""Object localization: every category of a split is searched in every image by its name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.datasets.formats.masks import decode_mask
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.localization.locator import (
    AnyLocalizer,
    choose_locator,
    pointing_skip_reason,
)
from bifocal.localization import peak_points, rasterize
from bifocal.metrics import mask_iou, mask_mean_ap, mask_mean_ap_of_overlaps, point_mean_ap
from bifocal.models.phrase_locator import PhraseLocator, embed_texts
from bifocal.report.sections import MetricRow, Section, metric_table

DEFAULT_THRESHOLD = 0.5
OVERLAPS = ("IoU@0.3", "IoU@0.4", "IoU@0.5")
IMAGES_PER_BATCH = 32
SIDE = 64
"""Cells along each side of a mask."""
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Candidates for the value from which on a heatmap, scaled to [0, 1], belongs to its mask."""


class ObjectLocalization:
    """mAP of points and masks, for datasets whose phrases are category names (COCO, VOC).

    Oquab et al., CVPR 2015 (points); BEAN, section 4.2 (masks). The threshold of the masks is tuned
    on ``val``.

    Args:
        localizer: part of ``bifocal.localization``; None for the encoder's own.
    """

    title = "Object localization"
    parts: ClassVar[Mapping[str, str]] = {"localizer": "bifocal.localization"}

    def __init__(self, localizer: AnyLocalizer | None = None) -> None:
        self.localizer = localizer

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped without phrases or a localizer, and if no phrase is the
        name of a category."""
        skipped = pointing_skip_reason(subject, self.localizer)
        if not skipped and not len(category_phrases(subject.split)):
            skipped = "No phrase is the name of a category."
        if skipped:
            return Result(self.title, skipped=skipped)
        locator = choose_locator(subject, self.localizer).locator
        metrics = object_metrics(locator, subject.split, subject.validation)
        rows = [
            MetricRow(
                "objects.point_mAP",
                metrics["point_mAP"],
                "mAP of points",
                baselines={"image center": metrics["centre_mAP"]},
            ),
            MetricRow("objects.centre_mAP", metrics["centre_mAP"], "mAP of the image center"),
            *(
                MetricRow(
                    f"objects.{name}{kind}",
                    metrics[f"{name}{kind}"],
                    f"mAP of masks, {name}{order}",
                )
                for kind, order in (("", ""), ("_by_overlap", ", images ranked by IoU"))
                for name in OVERLAPS
            ),
            MetricRow("objects.level", metrics["level"], "Threshold of masks", unit=""),
        ]
        note = (
            f"{metrics['objects']:,} objects of {metrics['categories']} categories. Every "
            "category is searched in every image; images are ranked by the maximum of the "
            "heatmap. BEAN's published code ranks them by the IoU itself, which gives nearly "
            "the share of objects above it: only these rows compare with the paper's 34, 24 "
            "and 15. True masks are segmentations where the dataset has them "
            f"({metrics['segmented']:,} pairs of image and category), otherwise boxes."
        )
        return Result(
            self.title,
            {"objects": metrics},
            rows=rows,
            sections=[Section(self.title, note, [metric_table("", rows)])],
        )


def object_metrics(
    locator: PhraseLocator, dataset: Dataset, validation: Dataset | None
) -> dict[str, Any]:
    """Return the mAP of points and masks in percent; ``validation`` tunes the threshold of masks
    (else 0.5)."""
    objects = category_phrases(dataset)
    threshold, tuned_on = DEFAULT_THRESHOLD, 0
    if validation is not None and len(category_phrases(validation)):
        maps = localize_objects(locator, validation)
        threshold = max(
            THRESHOLDS, key=lambda value: sum(maps.mask_metrics(value)[name] for name in OVERLAPS)
        )
        tuned_on = len(validation.images)
    maps = localize_objects(locator, dataset)
    sizes = dataset.images[["width", "height"]].to_numpy(np.float64)
    centers = np.broadcast_to(sizes / 2, maps.points.shape)
    return {
        "point_mAP": 100 * point_mean_ap(maps.scores, maps.points, maps.boxes),
        "centre_mAP": 100 * point_mean_ap(0 * maps.scores, centers, maps.boxes),
        **maps.mask_metrics(threshold),
        "level": threshold,
        "chosen_on": tuned_on,
        "categories": objects["category"].nunique(),
        "objects": int(objects["boxes"].map(len).sum()),
        "segmented": int(objects["mask"].notna().sum()),
    }


@dataclass(frozen=True)
class ObjectMaps:
    """Maxima (C, N) of the heatmaps of C categories in N images, with their points and overlaps.

    ``points`` (C, N, 2) are in pixels. ``overlaps`` (T, C, N) are the IoU of each threshold's mask
    with the true mask, 0 without one. ``boxes`` are the true boxes (n, 4) by category and image.
    """

    scores: NDArray[np.float64]
    points: NDArray[np.float64]
    overlaps: NDArray[np.float64]
    boxes: list[list[NDArray[np.float64]]]

    def mask_metrics(self, threshold: float) -> dict[str, float]:
        """Return the mAP of masks at a threshold, in percent, by our protocol and by the protocol
        of BEAN's code."""
        present = np.array([[len(truth) > 0 for truth in row] for row in self.boxes])
        overlaps = self.overlaps[THRESHOLDS.index(threshold)]
        ranked, by_overlap = (
            mask_mean_ap(self.scores, overlaps, present),
            mask_mean_ap_of_overlaps(overlaps, present),
        )
        values = {**ranked, **{f"{name}_by_overlap": value for name, value in by_overlap.items()}}
        return {name: 100 * value for name, value in values.items()}


def category_phrases(dataset: Dataset) -> pd.DataFrame:
    """Return the phrases that equal the name of their category and belong to no caption, as in COCO
    and VOC."""
    phrases = dataset.phrases
    return phrases[phrases["caption_id"].isna() & (phrases["category"] == phrases["phrase"])]


def localize_objects(locator: PhraseLocator, dataset: Dataset) -> ObjectMaps:
    """Search every category of ``dataset`` in every image of it."""
    objects, images = category_phrases(dataset), dataset.images
    names = sorted(set(objects["category"]))
    columns = (objects[name] for name in ("category", "image_id", "boxes", "mask"))
    known: dict[tuple[str, str], tuple[NDArray[np.float64], str | None]] = {
        (name, image): (boxes.astype(np.float64), mask)
        for name, image, boxes, mask in zip(*columns, strict=True)
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
                    heatmap = rasterize(
                        regions.scores[index][present], regions.boxes[index][present], SIDE, SIDE
                    )
                    overlaps[:, category, row] = [
                        mask_iou(heatmap, mask, threshold) for threshold in THRESHOLDS
                    ]
    return ObjectMaps(maxima, positions, overlaps, [[boxes for boxes, _ in row] for row in truth])


def true_mask(encoded: str | None, boxes: NDArray[np.floating], width: int, height: int) -> Tensor:
    """Return the cells (SIDE, SIDE) whose center an object covers: its segmentation, else its boxes
    (n, 4)."""
    x, y = ((np.arange(SIDE) + 0.5) / SIDE * size for size in (width, height))
    if isinstance(encoded, str):
        mask = decode_mask(encoded, width, height)[np.ix_(y.astype(np.int64), x.astype(np.int64))]
    else:
        across = (boxes[:, 0:1] <= x) & (x < boxes[:, 2:3])
        down = (boxes[:, 1:2] <= y) & (y < boxes[:, 3:4])
        mask = np.asarray((down[:, :, None] & across[:, None, :]).any(axis=0))
    return torch.from_numpy(mask)
