"""Object localization: every category of a split is searched in every image by its name."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.localization.locator import AnyLocalizer, choose_locator, pointing_skip_reason
from bifocal.evaluation.localization.object_maps import THRESHOLDS, category_phrases, localize_objects
from bifocal.metrics import point_mean_ap
from bifocal.models.phrase_locator import PhraseLocator
from bifocal.report.metric_rows import MetricRow, metric_table
from bifocal.report.sections import Section

DEFAULT_THRESHOLD = 0.5
OVERLAPS = ("IoU@0.3", "IoU@0.4", "IoU@0.5")


class ObjectLocalization:
    """mAP of points and masks, for datasets whose phrases are category names (COCO, VOC).

    Oquab et al., CVPR 2015 (points); BEAN, section 4.2 (masks). The threshold of the masks is tuned on ``val``.

    Args:
        localizer: part of ``bifocal.localization``; None for the encoder's own.
    """

    title = "Object localization"
    parts: ClassVar[Mapping[str, str]] = {"localizer": "bifocal.localization"}

    def __init__(self, localizer: AnyLocalizer | None = None) -> None:
        self.localizer = localizer

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped without phrases or a localizer, and if no phrase is the name of a category."""
        skipped = pointing_skip_reason(subject, self.localizer)
        if not skipped and not len(category_phrases(subject.split)):
            skipped = "No phrase is the name of a category."
        if skipped:
            return Result(self.title, skipped=skipped)
        locator = choose_locator(subject, self.localizer).locator
        validation = None if subject.split_name == "val" else subject.dataset.split("val")
        metrics = object_metrics(locator, subject.split, validation)
        rows = [
            MetricRow("objects.point_mAP", metrics["point_mAP"], "mAP of points",
                      baselines={"image center": metrics["centre_mAP"]}, unit="%"),
            MetricRow("objects.centre_mAP", metrics["centre_mAP"], "mAP of the image center", unit="%"),
            *(MetricRow(f"objects.{name}", metrics[name], f"mAP of masks, {name}", unit="%") for name in OVERLAPS),
            *(MetricRow(f"objects.{name}_by_overlap", metrics[f"{name}_by_overlap"],
                        f"mAP of masks, {name}, images ranked by IoU", unit="%") for name in OVERLAPS),
            MetricRow("objects.level", metrics["level"], "Threshold of masks"),
        ]  # fmt: skip
        note = (
            f"{metrics['objects']:,} objects of {metrics['categories']} categories. Every category is searched in "
            "every image; images are ranked by the maximum of the heatmap. BEAN's published code ranks them by the "
            "IoU itself, which gives nearly the share of objects above it: only these rows compare with the paper's "
            "34, 24 and 15. True masks are segmentations where the dataset has them "
            f"({metrics['segmented']:,} pairs of image and category), otherwise boxes."
        )
        return Result(
            self.title,
            {"objects": metrics},
            rows=rows,
            sections=[Section(self.title, note, [metric_table("", rows)])],
        )


def object_metrics(locator: PhraseLocator, dataset: Dataset, validation: Dataset | None) -> dict[str, Any]:
    """Return the mAP of points and masks in percent; ``validation`` tunes the threshold of masks (else 0.5)."""
    objects = category_phrases(dataset)
    threshold, tuned_on = DEFAULT_THRESHOLD, 0
    if validation is not None and len(category_phrases(validation)):
        maps = localize_objects(locator, validation)
        threshold = max(THRESHOLDS, key=lambda value: sum(maps.mask_metrics(value)[name] for name in OVERLAPS))
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
