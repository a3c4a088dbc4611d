"""Similarities of images by captions and objects."""

from dataclasses import replace
from math import log, sqrt
from pathlib import Path

import pandas as pd
import pytest

from bifocal.datasets import Dataset
from bifocal.evaluation.semantic.caption_similarity import (
    fisher_similarity,
    generated_similarity,
    meteor_similarity,
    object_similarity,
)

FISHER = "bifocal.evaluation.semantic.caption_similarity.FISHER"
SMALL_FISHER = {"dim": 8, "centers": 2, "components": 1, "epochs": 1}


def test_similarities_rank_an_image_with_the_same_captions_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FISHER, SMALL_FISHER)
    captions = {0: ["a red dog runs", "green grass"], 1: ["a red dog runs", "green grass"], 2: ["two men eat pizza"]}
    training = [text for texts in captions.values() for text in texts]
    for similarity in (meteor_similarity(captions), fisher_similarity(training, captions, seed=0)):
        assert similarity(0, 1) == pytest.approx(1)
        assert similarity(0, 2) < 0.9


def test_object_similarity_is_tf_idf_of_the_numbers_of_objects(dataset: Dataset) -> None:
    ids = {name: list(dataset.split(name).images["image_id"]) for name in ("train", "test")}
    counts = {
        **{name: {"dog": 1.0} for name in ids["train"][:9]},
        ids["train"][9]: {"dog": 2.0, "cup": 1.0},
        ids["test"][0]: {"dog": 1.0, "cup": 3.0},
        ids["test"][1]: {"dog": 4.0},
        ids["test"][2]: {"cup": 1.0, "unseen": 7.0},
    }
    rows = [(image, "synsets", name, value) for image, row in counts.items() for name, value in row.items()]
    labels = pd.DataFrame(rows, columns=["image_id", "task", "label", "value"])
    labeled = replace(dataset, labels=labels)
    similarity = object_similarity(labeled, labeled.split("test"))

    documents = {"dog": 10, "cup": 1}  # of 12 training images

    def vector(row: dict[str, float]) -> dict[str, float]:
        weights = {name: row.get(name, 0.0) * (log(13 / (1 + count)) + 1) for name, count in documents.items()}
        norm = sqrt(sum(weight**2 for weight in weights.values()))
        return {name: weight / norm for name, weight in weights.items()}

    for first, second in ((0, 1), (0, 2), (1, 2)):
        one, other = (vector(counts[ids["test"][row]]) for row in (first, second))
        assert similarity(first, second) == pytest.approx(sum(one[name] * other[name] for name in documents))
    assert similarity(0, 3) == 0.0  # an image without objects


def test_generated_captions_are_compared_by_tf_idf_of_peoples_captions(dataset: Dataset, tmp_path: Path) -> None:
    """Loops over the words; the weights of words come from the captions of 12 training images."""
    train = dataset.split("train")
    texts = ["red", "blue", "green", "circle", "square", "triangle"]
    captions = pd.DataFrame(
        {
            "caption_id": range(12),
            "image_id": train.images["image_id"],
            "text": [f"{texts[row % 3]} {texts[3 + row % 2]}" for row in range(12)],
        }
    )
    changed = replace(dataset, captions=pd.concat([captions, dataset.split("test").captions]))
    split = changed.split("test")
    ids = list(split.images["image_id"])
    written = {0: ["red circle", "a red square"], 1: ["blue square"], 2: ["unknown"]}
    rows = [(ids[row], text) for row in range(len(ids)) for text in written.get(row, ["green"])]
    file = tmp_path / "generated.csv"
    pd.DataFrame([*rows, ("elsewhere", "red")], columns=["image_id", "text"]).to_csv(file, index=False)
    similarity = generated_similarity(file, changed, split)

    def idf(images: int) -> float:
        return log(13 / (1 + images)) + 1

    color, shape = idf(4), idf(6)
    first = {"red": 2 * color, "circle": shape, "square": shape}
    norm = sqrt(sum(value**2 for value in first.values())) * sqrt(color**2 + shape**2)
    assert similarity(0, 1) == pytest.approx(shape * shape / norm)
    assert similarity(0, 2) == 0.0
    pd.DataFrame(rows[:2], columns=["image_id", "text"]).to_csv(file, index=False)
    with pytest.raises(ValueError, match=f"has no caption of {len(ids) - 1} images of the split"):
        generated_similarity(file, changed, split)
