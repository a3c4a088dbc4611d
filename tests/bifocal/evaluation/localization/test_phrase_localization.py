"""Proposals ranked for each phrase."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bifocal.evaluation import PhraseLocalization
from bifocal.evaluation.base import Subject
from bifocal.evaluation.localization.phrase_localization import regions_are_proposals
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.metrics import box_iou
from bifocal.models.phrase_locator import PhraseLocator, phrases_in_context
from tests.bifocal.evaluation.small import DIM


def test_phrase_localization_ranks_proposals_of_each_phrase(
    subject: Subject, locator: PhraseLocator, tmp_path: Path
) -> None:
    """The proposals of an image are the first boxes of its phrases and the whole image; the
    reference is a loop."""
    split, random = subject.split, np.random.default_rng(0)
    sizes = split.images.set_index("image_id")[["width", "height"]].astype(float)
    with FeatureWriter(tmp_path, regions=9, dim=DIM, metadata={}) as writer:
        for image_id in split.images["image_id"]:
            first_boxes = [
                boxes[0] for boxes in split.phrases["boxes"][split.phrases["image_id"] == image_id]
            ]
            boxes = np.unique(first_boxes, axis=0)[:8] / np.tile(sizes.loc[image_id], 2)
            boxes = np.concatenate([boxes, [[0, 0, 1, 1]]]).astype(np.float32)
            writer.add(image_id, random.normal(size=(len(boxes), DIM)).astype(np.float32), boxes)
    proposals = replace(subject, features=FeatureStore(tmp_path))
    image_ids = list(split.images["image_id"][:3])
    assert regions_are_proposals(replace(locator, features=proposals.features).encode(image_ids))
    assert not regions_are_proposals(locator.encode(image_ids))
    assert "cells of a grid" in PhraseLocalization()(subject).skipped
    result = PhraseLocalization()(proposals)
    metrics, precision = result.metrics["phrase_localization"], result.tables["phrase_precision"]
    first_is_correct, any_is_correct, in_union = [], [], []
    by_category: dict[str, list[bool]] = {}
    regions = replace(locator, features=proposals.features).locate(phrases_in_context(split))
    for row, scores, boxes in zip(split.phrases.itertuples(), *regions, strict=True):
        pixels = boxes.numpy() * np.tile(sizes.loc[row.image_id], 2)
        correct = (box_iou(pixels, row.boxes) >= 0.5).any(axis=1) & scores.isfinite().numpy()
        first_is_correct.append(bool(correct[int(scores.argmax())]))
        by_category.setdefault(row.category, []).append(first_is_correct[-1])
        corners = np.array(row.boxes)
        union = np.array([[*corners[:, :2].min(axis=0), *corners[:, 2:].max(axis=0)]])
        in_union.append(bool(box_iou(pixels[[int(scores.argmax())]], union)[0, 0] >= 0.5))
        any_is_correct.append(bool(correct.any()))
    assert metrics["R@1"] == pytest.approx(100 * np.mean(first_is_correct))
    assert metrics["upper_bound"] == pytest.approx(100 * np.mean(any_is_correct)) == metrics["R@10"]
    assert metrics["R@1"] < metrics["upper_bound"]
    assert metrics["union_box"]["R@1"] == pytest.approx(100 * np.mean(in_union))
    assert {
        name: (values["R@1"], values["phrases"]) for name, values in metrics["categories"].items()
    } == {
        name: (pytest.approx(100 * np.mean(values)), len(values))
        for name, values in by_category.items()
    }
    assert precision["count"].sum() == metrics["phrases"] == len(split.phrases)
    assert metrics["mAP"] == pytest.approx(precision["AP"].mean())
    row = result.metric_rows()[0]
    assert (row.name, row.value) == ("phrase_localization.R@1", metrics["R@1"])
    assert row.baselines == {"chance": metrics["chance"]["R@1"]}
