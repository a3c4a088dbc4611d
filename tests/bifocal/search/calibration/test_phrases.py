"""Whether a phrase is in an image: the head's score and the trained model's cosine together."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.corpora import ImageFolder
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import read_json
from bifocal.onnx.pointing import FOLDER, PointingHead, open_pointer
from bifocal.onnx.pointing.head import DESCRIPTION, presence_score
from bifocal.onnx.text.captions import tokenize
from bifocal.search.calibration.phrases import (
    MIN_IMAGES,
    calibrate_phrases,
    logit_sum,
    phrases_of,
)
from bifocal.search.trained_model import ONNX, TrainedModel
from tests.bifocal.datasets.small import SETTINGS
from tests.bifocal.pointing_heads import write_head

WORDS = st.sampled_from(["dog", "red", "car", "two", "water", "boat"])
CAPTIONS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
IMAGES = st.lists(st.lists(CAPTIONS, min_size=1, max_size=3), min_size=1, max_size=6)


@given(IMAGES)
def test_an_image_is_asked_for_its_phrases_and_for_others_without_its_words(
    captions: list[list[str]],
) -> None:
    asked = list(phrases_of(captions))
    assert len(asked) == len(captions)
    every = {phrase for own, _ in asked for phrase in own}
    for texts, (own, others) in zip(captions, asked, strict=True):
        words = {word for text in texts for word in tokenize(text)}
        absent = {phrase for phrase in every if not words & {*tokenize(phrase)}}
        assert all(words >= {*tokenize(phrase)} for phrase in own)
        assert {*others} <= absent
        assert len({*others}) == len(others) == min(len(own), len(absent))


def test_the_logits_of_both_scores_are_added() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(400) < 0.5
    scores = labels[:, None] * [1.0, 0.2] + rng.normal(size=(400, 2)) * [2.0, 0.1] + [-7.0, 0.3]
    logits = [
        LogisticRegression(C=1e3, tol=1e-9).fit(column[:, None], labels).coef_[0, 0] * column
        for column in scores.T
    ]
    fitted = LogisticRegression(C=1e3, tol=1e-9).fit(np.sum(logits, axis=0)[:, None], labels)
    slope, cosine, offset = logit_sum(scores, labels)
    expected = fitted.decision_function(np.sum(logits, axis=0)[:, None])
    assert slope * scores[:, 0] + cosine * scores[:, 1] + offset == pytest.approx(
        expected, abs=1e-3
    )


def dataset_of(demo: TrainedModel, images: int, folder: Path) -> Dataset:
    """Return a dataset whose images of "val" are those of the demo, with its captions."""
    (folder / "photos").mkdir(parents=True)
    lines = ["image,caption,split"]
    for row in range(images + 2):
        shutil.copy(Path(str(demo.collection.image(row))), folder / "photos" / f"{row}.png")
        caption = demo.collection.items["captions"][row].as_py()[0]
        lines.append(f'{row}.png,"{caption}",{("train", "test")[row] if row < 2 else "val"}')
    (folder / "photos" / "captions.csv").write_text("\n".join(lines))
    (folder / "dataset").mkdir()
    corpus = ImageFolder(folder / "photos").read(folder)
    write_dataset(folder / "dataset", "ImageFolder", corpus, **{**SETTINGS, "max_pixels": 10**6})
    return read_dataset(folder / "dataset")


@pytest.fixture
def model(
    demo: TrainedModel, graph_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(graph_cache))
    write_head(tmp_path)
    shutil.copytree(demo.directory / ONNX, tmp_path / "onnx")
    shutil.copytree(tmp_path / "head", tmp_path / "onnx" / FOLDER)
    return tmp_path / "onnx"


def test_a_trained_model_tells_what_its_captions_name(
    model: Path, demo: TrainedModel, tmp_path: Path
) -> None:
    dataset, former = (
        dataset_of(demo, MIN_IMAGES + 4, tmp_path),
        read_json(model / FOLDER / DESCRIPTION),
    )
    calibrate_phrases(model, dataset)
    fitted = read_json(model / FOLDER / DESCRIPTION)
    assert fitted["cosine"] > 0
    changed = {"slope", "offset", "cosine"}
    assert {name: value for name, value in fitted.items() if name not in changed} == {
        name: value for name, value in former.items() if name not in changed
    }
    embedder, head = Embedder(model), PointingHead(model / FOLDER)
    pointer = open_pointer(model, embedder)
    assert isinstance(pointer, PointingHead)
    content, phrases = dataset.image_path("3.png").read_bytes(), ["a red star", "water"]
    known = [place.probability for place in pointer.locate(content, phrases, 8)]
    (vector,), read = embedder.embed_images([content]), head.read(content)
    cosines = embedder.embed_sentences(phrases) @ vector
    scores = [presence_score(read.presence, weights) for weights in head.weights(phrases)]
    logits = fitted["slope"] * np.array(scores) + fitted["cosine"] * cosines + fitted["offset"]
    assert known == pytest.approx(1 / (1 + np.exp(-logits)))
    decoded = pointer.locate(pointer.decoder(content), phrases, 8)
    assert [place.probability for place in decoded] == known


def test_few_images_leave_the_numbers_of_the_head(
    model: Path, demo: TrainedModel, tmp_path: Path
) -> None:
    before = (model / FOLDER / DESCRIPTION).read_bytes()
    calibrate_phrases(model, dataset_of(demo, MIN_IMAGES - 1, tmp_path))
    assert (model / FOLDER / DESCRIPTION).read_bytes() == before
