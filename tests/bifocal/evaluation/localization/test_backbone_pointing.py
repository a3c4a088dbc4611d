"""Guesses and refusals of the backbone's pointing head in the report."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from bifocal.evaluation import BackbonePointing
from bifocal.evaluation.base import Subject, build_page
from bifocal.evaluation.localization.backbone_pointing import things
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.localization.heads import ClassMixture
from bifocal.metrics import pointing_hits
from bifocal.onnx.heatmaps import peak
from bifocal.onnx.pointing import PointingHead
from bifocal.report.sections import Gallery, render
from tests.bifocal.evaluation.small import DIM, SIDE
from tests.bifocal.pointing_heads import PADDED, describe, write_head


@pytest.fixture(scope="module")
def folder(graph_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a pointing head, its classes and the weights of its backbone."""
    made = tmp_path_factory.mktemp("head")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(graph_cache))
        write_head(made)
        yield made


@pytest.fixture(scope="module")
def with_backbone(subject: Subject, folder: Path) -> Subject:
    """The small subject, whose features keep the backbone's weights."""
    with FeatureWriter(folder, regions=SIDE**2, dim=DIM, metadata=describe(PADDED)) as writer:
        for image_id in subject.dataset.images["image_id"]:
            writer.add(image_id, np.ones((SIDE**2, DIM), dtype=np.float32))
    return replace(subject, features=FeatureStore(folder))


def head(folder: Path, threshold: float) -> ClassMixture:
    """Return the part of the head that ``folder`` holds."""
    return ClassMixture(classes=folder / "classes.safetensors", sizes=(96, 64), threshold=threshold)


@pytest.mark.slow
def test_the_accuracy_is_that_of_the_exported_head(with_backbone: Subject, folder: Path) -> None:
    result = BackbonePointing(head(folder, 0.0))(replace(with_backbone, shown=1))
    split, served, hits = with_backbone.split, PointingHead(folder / "head"), []
    for phrase in split.phrases.to_dict("records"):
        path = with_backbone.dataset.image_path(phrase["image_id"])
        (place,) = served.locate(path.read_bytes(), [phrase["phrase"]], 96)
        width, height = split.images.set_index("image_id").loc[
            phrase["image_id"], ["width", "height"]
        ]
        point = np.array([peak(place.heatmap)]) * [width, height]
        hits.append(bool(pointing_hits(point, [phrase["boxes"]])[0]))
    metrics = result.metrics["backbone_pointing"]
    assert metrics["accuracy"] == pytest.approx(100 * np.mean(hits))
    assert metrics["phrases"] == len(hits)
    assert metrics["low"] <= metrics["accuracy"] <= metrics["high"]
    assert result.metric_rows()[0].value == metrics["accuracy"]


@pytest.mark.slow
def test_the_report_shows_guesses_and_refusals(with_backbone: Subject, folder: Path) -> None:
    unboxed = replace(
        with_backbone,
        dataset=replace(with_backbone.dataset, phrases=with_backbone.dataset.phrases[:0]),
    )
    for threshold, caption in (
        (0.0, r"'[^']+': a guess|perhaps no '[^']+' in this image"),
        (1.0, r"no '[^']+' in this image"),
    ):
        result = BackbonePointing(head(folder, threshold))(replace(unboxed, shown=2))
        assert (result.metrics, result.metric_rows()) == ({}, [])
        ((gallery,),) = [section.blocks for section in result.report_sections()]
        assert isinstance(gallery, Gallery)
        assert 4 < len(gallery.items) <= 8
        for item in gallery.items:
            assert re.fullmatch(caption, item.caption)
            assert all(
                (picture.point is None) == (threshold == 1.0) == (not picture.heatmap)
                for picture in item.pictures
            )
        assert ("a guess" if threshold == 0.0 else "in this image") in render(
            build_page(unboxed, [result], {})
        )


@pytest.mark.slow
def test_features_without_a_classifier_give_the_reason(
    with_backbone: Subject, subject: Subject, folder: Path, tmp_path: Path
) -> None:
    assert BackbonePointing()(subject).skipped == "The features keep no weights of a backbone."
    state = load_file(folder / "weights.safetensors")
    for file in (*folder.glob("*.arrow"), folder / "classes.safetensors"):
        shutil.copy(file, tmp_path)
    save_file(
        {k: v for k, v in state.items() if "classifier" not in k}, tmp_path / "weights.safetensors"
    )
    without = replace(with_backbone, features=FeatureStore(tmp_path))
    assert (
        "2 missing (classifier.bias, classifier.weight)"
        in BackbonePointing(head(folder, 0.0))(without).skipped
    )


def test_phrases_of_the_gallery_are_things_that_captions_agree_on() -> None:
    captions = [
        "A girl is playing, on the left.",
        "A girl in a red shirt plays",
        "Playing in a red shirt",
        "jeeps packed",
    ]
    assert things(captions) == ["girl", "red shirt"]
    assert things(["Left, playing in front."]) == []
    assert things(["A dog running in the snow"]) == ["dog running", "snow"]
