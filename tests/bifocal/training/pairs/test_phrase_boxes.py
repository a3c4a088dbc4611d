"""Phrases and boxes against loops over the tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter, RegionBatch
from bifocal.text import TextBatch
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training.pairs import PhraseBoxPairs

PHRASES = ("a red star", "a blue ring", "a green heart", "a pink square")
IMAGES, REGIONS = 24, 6


def truth() -> set[tuple[str, int]]:
    """Each phrase with its boxes, numbered through the images of the fixture."""
    return {
        (PHRASES[kind], number * REGIONS + cell)
        for number in range(IMAGES)
        for cell, kind in enumerate((number % 4, (number + 1 + number // 4 % 3) % 4))
    }


def pairs_of(folder: Path, boxes: np.ndarray | None, *phrases: str) -> PhraseBoxPairs:
    """One image with three regions and phrases, by default "a star", whose box is the top left quarter."""
    names = list(phrases or ["a star"])
    with FeatureWriter(folder, regions=3, dim=2, metadata={}, images_per_file=1) as writer:
        writer.add("a", np.array([[1, 0], [2, 1], [2, 1]], np.float32), boxes)
    truth = [np.array([[0, 0, 50, 50]], np.float32)] * len(names)
    table = pd.DataFrame({"image_id": "a", "phrase": names, "boxes": truth})
    images = pd.DataFrame({"image_id": ["a"], "width": 100, "height": 100})
    vectorizer = TFIDF(min_count=1)
    vectorizer.fit(["a star"], seed=0)
    tables = Dataset(images, pd.DataFrame(), table, folder)
    return PhraseBoxPairs(tables, FeatureStore(folder), FittedVectorizer(vectorizer))


def test_positives_are_the_boxes_of_the_tables(phrase_boxes: PhraseBoxPairs) -> None:
    assert phrase_boxes.phrases == sorted(PHRASES)
    assert {(phrase_boxes.phrases[row], box) for row, box in phrase_boxes.positives.tolist()} == truth()
    for name, candidates in zip(phrase_boxes.phrases, phrase_boxes.candidates, strict=True):
        images = {box // REGIONS for phrase, box in truth() if phrase == name}
        assert candidates.tolist() == [REGIONS * image + cell for image in sorted(images) for cell in range(REGIONS)]


def test_overlapping_boxes_are_neither_positives_nor_negatives(tmp_path: Path) -> None:
    boxes = np.array([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.4], [0.5, 0.5, 1.0, 1.0]], np.float32)
    pairs = pairs_of(tmp_path, boxes)
    assert (pairs.positives.tolist(), pairs.overlapping) == ([[0, 0]], {(0, 0), (0, 1)})

    class PrefersTheSecondFeature:
        device = torch.device("cpu")

        def eval(self) -> None: ...

        def embed_images(self, regions: RegionBatch) -> torch.Tensor:
            return regions.features[:, 0]

        def embed_captions(self, text: TextBatch) -> torch.Tensor:
            return torch.tensor([[0.0, 1.0]])

    assert [rows.tolist() for rows in pairs.hard_negatives(PrefersTheSecondFeature(), torch.Generator())] == [[2]]


def test_an_overlapping_box_of_a_batch_is_a_match_and_no_negative(tmp_path: Path) -> None:
    boxes = np.array([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.4], [0.5, 0.5, 1.0, 1.0]], np.float32)
    batch = pairs_of(tmp_path, boxes).batch(torch.tensor([[0, 0], [-1, 1], [-1, 2]]))
    assert batch.matches.tolist() == [[True], [True], [False]]


def test_phrases_that_differ_in_case_are_one_phrase(tmp_path: Path) -> None:
    boxes = np.array([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.4], [0.5, 0.5, 1.0, 1.0]], np.float32)
    pairs = pairs_of(tmp_path, boxes, "A star", "a star")
    assert (pairs.phrases, pairs.positives.tolist()) == (["a star"], [[0, 0]])


def test_phrase_box_pairs_reject_features_without_boxes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the features of image 'a' have no boxes"):
        pairs_of(tmp_path, None)


def test_batch_matches_phrases_with_their_boxes(phrase_boxes: PhraseBoxPairs) -> None:
    first = int(phrase_boxes.positives[0, 1])
    batch = phrase_boxes.batch(torch.tensor([[0, first], [-1, 5], [3, 2], [0, 2]]))
    boxes = sorted({first, 5, 2})
    assert batch.image_ids == [f"image {box // REGIONS}, region {box % REGIONS}" for box in boxes]
    assert batch.matches.tolist() == [[(phrase_boxes.phrases[row], box) in truth() for row in (0, 3)] for box in boxes]
    assert batch.regions.features.shape == (3, 1, 12)
    stored = phrase_boxes.features.gather([0]).boxes[0]
    np.testing.assert_array_equal(batch.regions.boxes[:, 0], stored[[box % REGIONS for box in boxes]])
    expected = phrase_boxes.vectorizer.vectorize([phrase_boxes.phrases[0], phrase_boxes.phrases[3]]).values
    torch.testing.assert_close(batch.text.values, expected)


def test_batch_rejects_several_processes(phrase_boxes: PhraseBoxPairs) -> None:
    with pytest.raises(ValueError, match="one process"):
        phrase_boxes.batch(torch.tensor([[0, 0]]), 0, 2)
