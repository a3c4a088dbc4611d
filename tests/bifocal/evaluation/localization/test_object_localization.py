"""Every category searched in every image."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bifocal.datasets.formats.masks import encode_mask
from bifocal.evaluation import ObjectLocalization
from bifocal.evaluation.base import Subject
from bifocal.evaluation.localization.object_localization import localize_objects, true_mask
from bifocal.localization import peak_points
from bifocal.models.phrase_locator import PhraseLocator, phrases_in_context


def test_object_localization_searches_every_category_in_every_image(
    subject: Subject, locator: PhraseLocator
) -> None:
    assert "name of a category" in ObjectLocalization()(subject).skipped
    named = subject.dataset.phrases.drop_duplicates(["image_id", "category"])
    named = named.assign(
        phrase=named["category"], caption_id=pd.array([None] * len(named), dtype="Int64")
    )
    objects = replace(
        subject, dataset=replace(subject.dataset, phrases=named.reset_index(drop=True))
    )
    split = objects.split
    metrics = ObjectLocalization()(objects).metrics["objects"]
    assert {"point_mAP", "centre_mAP", "IoU@0.3", "IoU@0.4", "IoU@0.5"} <= metrics.keys()
    assert metrics["IoU@0.3"] >= metrics["IoU@0.5"]
    assert metrics["chosen_on"] == len(subject.dataset.split("val").images)
    assert metrics["categories"] == split.phrases["category"].nunique()
    maps = localize_objects(locator, split)
    names, ids = sorted(set(split.phrases["category"])), list(split.images["image_id"])
    assert maps.scores.shape == (len(names), len(ids))
    rows = phrases_in_context(split)
    regions = locator.locate(rows)
    positions = peak_points(regions).numpy() * 64  # scenes of 64 x 64 pixels
    for row, (category, image_id) in enumerate(rows[["category", "image_id"]].to_numpy()):
        cell = names.index(category), ids.index(image_id)
        assert maps.scores[cell] == pytest.approx(float(regions.scores[row].max()), abs=1e-5)
        assert maps.points[cell] == pytest.approx(positions[row])
        np.testing.assert_array_equal(maps.boxes[cell[0]][cell[1]], rows["boxes"][row])


def test_object_localization_uses_segmentations(subject: Subject) -> None:
    """Each mask is the box of its phrase, so the metrics equal the metrics of boxes; emptied masks
    give 0."""
    named = subject.dataset.phrases.drop_duplicates(["image_id", "category"])
    named = named.assign(
        phrase=named["category"], caption_id=pd.array([None] * len(named), dtype="Int64")
    )
    pixels = (np.arange(64) + 0.5)[:, None, None], (np.arange(64) + 0.5)[None, :, None]
    masks = []
    for boxes in named["boxes"]:
        inside = (boxes[:, 1] <= pixels[0]) & (pixels[0] < boxes[:, 3]) & (boxes[:, 0] <= pixels[1])
        masks.append(encode_mask((inside & (pixels[1] < boxes[:, 2])).any(axis=2)))

    def metrics(mask: object) -> dict[str, float]:
        dataset = replace(subject.dataset, phrases=named.assign(mask=mask).reset_index(drop=True))
        values: dict[str, float] = ObjectLocalization()(replace(subject, dataset=dataset)).metrics[
            "objects"
        ]
        return values

    from_boxes, from_masks = metrics(None), metrics(masks)
    assert from_masks["segmented"] == len(named[named["image_id"].str.startswith("test")])
    assert from_boxes["segmented"] == 0
    assert from_masks | {"segmented": 0} == from_boxes
    assert metrics(encode_mask(np.zeros((64, 64), dtype=bool)))["IoU@0.3"] == 0.0


def test_true_mask_is_segmentation_or_boxes() -> None:
    left = np.zeros((32, 64), dtype=bool)
    left[:, :16] = True
    right_box = np.array([[32.0, 0, 64, 32]])
    assert (
        true_mask(encode_mask(left), right_box, 64, 32).sum(dim=0).tolist() == [64] * 16 + [0] * 48
    )
    assert true_mask(None, right_box, 64, 32).sum(dim=0).tolist() == [0] * 32 + [64] * 32
