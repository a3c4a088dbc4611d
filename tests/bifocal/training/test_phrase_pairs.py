"""Phrases with boxes as pairs, and hard-negative boxes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.models import build_model
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training import phrase_pairs
from bifocal.training.phrase_pairs import PhraseBoxPairs, hard_negative_boxes

PHRASES = ("a red star", "a blue ring", "a green heart", "a pink square")
IMAGES, REGIONS, TRUTH = 24, 8, 6
BOXES = np.array([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.4], [0.5, 0.5, 1.0, 1.0]], np.float32)


def truth(first: int = TRUTH) -> set[tuple[str, int]]:
    """Each phrase with its boxes, numbered through the images of the fixture; ``first`` is the
    region of the first."""
    return {
        (PHRASES[kind], number * REGIONS + first + cell)
        for number in range(IMAGES)
        for cell, kind in enumerate((number % 4, (number + 1 + number // 4 % 3) % 4))
    }


def pairs_of(
    folder: Path, boxes: np.ndarray | None, *phrases: str, truth: int = 0
) -> PhraseBoxPairs:
    """One image with three regions and phrases, by default "a star", whose box is the top left
    quarter.

    With ``truth`` 1, that box is the last region, a ground-truth box.
    """
    names = list(phrases or ["a star"])
    features = np.array([[1, 0], [2, 1], [2, 1], [1, 1]], np.float32)[: 3 + truth]
    given = boxes if boxes is None or not truth else np.concatenate([boxes, BOXES[:1]])
    metadata = {"truth_regions": truth}
    with FeatureWriter(
        folder, regions=3 + truth, dim=2, metadata=metadata, images_per_file=1
    ) as writer:
        writer.add("a", features, given, truth=truth)
    table = pd.DataFrame(
        {"image_id": "a", "phrase": names, "boxes": [np.array([[0, 0, 50, 50]])] * len(names)}
    )
    images = pd.DataFrame({"image_id": ["a"], "width": 100, "height": 100})
    vectorizer = TFIDF(min_count=1)
    vectorizer.fit(["a star"], seed=0)
    tables = Dataset(images, pd.DataFrame(), table, folder)
    return PhraseBoxPairs(tables, FeatureStore(folder), FittedVectorizer(vectorizer))


def test_positives_are_the_ground_truth_boxes_of_the_tables(phrase_boxes: PhraseBoxPairs) -> None:
    assert phrase_boxes.phrases == sorted([*PHRASES, "a thing without a box"])
    assert {
        (phrase_boxes.phrases[row], box) for row, box in phrase_boxes.positives.tolist()
    } == truth()
    pairs = {
        (phrase_boxes.phrases[row], image) for row, image in phrase_boxes.phrase_images.tolist()
    }
    assert pairs == {(name, box // REGIONS) for name, box in truth()} | {
        ("a thing without a box", 0)
    }
    assert phrase_boxes.proposals(3).tolist() == [*range(3 * REGIONS, 3 * REGIONS + TRUTH)]


def test_resampling_keeps_a_few_boxes_of_each_phrase_and_repeats(
    phrase_boxes: PhraseBoxPairs,
) -> None:
    few = phrase_boxes.resampled(3)
    assert few.equal(phrase_boxes.resampled(3))
    assert few[:, 0].bincount().tolist() == [3, 3, 3, 3]
    assert {tuple(row) for row in few.tolist()} < {
        tuple(row) for row in phrase_boxes.positives.tolist()
    }
    assert phrase_boxes.resampled(99).equal(phrase_boxes.positives)


def test_overlapping_boxes_of_a_batch_are_matches_and_no_negatives(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, BOXES, truth=1)
    assert pairs.positives.tolist() == [[0, 3]]
    batch = pairs.batch(torch.tensor([[0, 3], [-1, 0], [-1, 1], [-1, 2]]))
    assert batch.matches.tolist() == [[True], [True], [False], [True]]
    assert pairs.overlaps(torch.zeros(4, dtype=torch.int64), torch.arange(4)).tolist() == [
        True,
        True,
        False,
        True,
    ]


def test_phrases_that_differ_in_case_are_one_phrase(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, BOXES, "A star", "a star", truth=1)
    assert (pairs.phrases, pairs.positives.tolist()) == (["a star"], [[0, 3]])


def test_phrase_box_pairs_name_the_features_that_they_lack(tmp_path: Path) -> None:
    for name in ("none", "proposals"):
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match="the features of image 'a' have no boxes"):
        pairs_of(tmp_path / "none", None)
    with pytest.raises(
        ValueError, match="no ground-truth boxes of the phrases to train on: set truth_regions"
    ):
        pairs_of(tmp_path / "proposals", BOXES).resampled(10)


def test_batch_matches_phrases_with_their_boxes(phrase_boxes: PhraseBoxPairs) -> None:
    first = int(phrase_boxes.positives[0, 1])
    batch = phrase_boxes.batch(torch.tensor([[0, first], [-1, 5], [3, 2], [0, 2], [-1, 0]]))
    boxes, correct = sorted({first, 0, 2, 5}), truth() | truth(first=0)
    assert batch.image_ids == [f"image {box // REGIONS}, region {box % REGIONS}" for box in boxes]
    assert batch.matches.tolist() == [
        [(phrase_boxes.phrases[row], box) in correct for row in (0, 3)] for box in boxes
    ]
    assert batch.matches.any()
    assert batch.regions.features.shape == (4, 1, 12)
    stored = phrase_boxes.features.gather([0])
    np.testing.assert_array_equal(batch.regions.boxes[:3, 0], stored.boxes[0, [0, 2, 5]])
    np.testing.assert_array_equal(batch.regions.features[:3, 0], stored.features[0, [0, 2, 5]])
    expected = phrase_boxes.vectorizer.vectorize(
        [phrase_boxes.phrases[0], phrase_boxes.phrases[3]]
    ).values
    torch.testing.assert_close(batch.text.values, expected)


def test_batch_rejects_several_processes(phrase_boxes: PhraseBoxPairs) -> None:
    with pytest.raises(ValueError, match="one process"):
        phrase_boxes.batch(torch.tensor([[0, 0]]), 0, 2)


@pytest.fixture(scope="module")
def model(phrase_boxes: PhraseBoxPairs) -> Any:
    torch.manual_seed(0)
    text_dim = phrase_boxes.vectorizer.vectorize(["a"]).values.shape[1]
    ref = {
        "name": "TwoBranchModel",
        "dim": 8,
        "image_encoder": "LinearEncoder",
        "text_encoder": "BagOfWordsEncoder",
    }
    return build_model(ref, feature_dim=12, text_dim=text_dim, text_format="sparse").eval()


def closer_boxes(
    model: Any, pairs: PhraseBoxPairs, positives: list[list[int]]
) -> dict[int, set[int]]:
    """Proposals closer to a phrase than the farthest of its ground-truth boxes, by Euclidean
    distance."""
    hard: dict[int, set[int]] = {}
    for row in sorted({phrase for phrase, _ in positives}):
        with torch.no_grad():
            query = model.embed_captions(pairs.vectorizer.vectorize([pairs.phrases[row]]))[0]
            boxes = [box for phrase, box in positives if phrase == row]
            farthest = max(
                float((model.embed_images(pairs.boxes(torch.tensor([b])))[0] - query).norm())
                for b in boxes
            )
            hard[row] = set()
            for image in [image for phrase, image in pairs.phrase_images.tolist() if phrase == row]:
                for box in range(image * pairs.regions, image * pairs.regions + 6):
                    distance = (
                        model.embed_images(pairs.boxes(torch.tensor([box])))[0] - query
                    ).norm()
                    correct = bool(pairs.overlaps(torch.tensor([row]), torch.tensor([box])))
                    if not correct and float(distance) < farthest - 1e-6:
                        hard[row].add(box)
    return hard


def test_hard_negative_boxes_are_closer_than_a_ground_truth_box(
    model: Any, phrase_boxes: PhraseBoxPairs
) -> None:
    positives = phrase_boxes.resampled(2)
    rows = hard_negative_boxes(model, phrase_boxes, positives, torch.Generator(), max_negatives=999)
    expected = closer_boxes(model, phrase_boxes, positives.tolist())
    assert sum(map(len, expected.values())) > 20
    assert sorted(map(tuple, rows.tolist())) == sorted(
        (row, box) for row in expected for box in expected[row]
    )


def test_hard_negative_boxes_draw_at_most_max_negatives(
    model: Any, phrase_boxes: PhraseBoxPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    positives = phrase_boxes.resampled(2)
    everything = hard_negative_boxes(
        model, phrase_boxes, positives, torch.Generator(), max_negatives=999
    )
    counts = everything[:, 0].bincount(minlength=4)

    def draw(seed: int) -> torch.Tensor:
        return hard_negative_boxes(
            model, phrase_boxes, positives, torch.Generator().manual_seed(seed), max_negatives=5
        )

    few = draw(1)
    assert few[:, 0].bincount(minlength=4).tolist() == counts.clamp(max=5).tolist()
    assert {tuple(row) for row in few.tolist()} < {tuple(row) for row in everything.tolist()}
    assert not few.equal(draw(2))
    monkeypatch.setattr(
        phrase_pairs, "MAX_WAITING", 7
    )  # drawn after every few images, the boxes are the same
    assert few.equal(draw(1))
