"""Batches of phrases and boxes against loops over the tables, and fine-tuning on the boxes that fool a model."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter, RegionBatch
from bifocal.losses import StructurePreservingLoss
from bifocal.models import build_model
from bifocal.text import Text
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training import fit
from bifocal.training.batches.phrase_boxes import PhraseBoxes, PhraseSampler, PhraseValidator

PHRASES = ("a red star", "a blue ring", "a green heart", "a pink square")
IMAGES, REGIONS, DIM, SIDE = 24, 6, 12, 120
CELLS = np.array([[x / 3, y / 2, (x + 1) / 3, (y + 1) / 2] for y in range(2) for x in range(3)], np.float32)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PhraseBoxes:
    """Each image shows two things in cells 0 and 1; in cell 2 the background looks like the first, only more so."""
    folder: Path = tmp_path_factory.mktemp("boxes")
    random = np.random.default_rng(0)
    kinds, background = random.normal(size=(4, DIM)), random.normal(size=DIM)
    rows = []
    with FeatureWriter(folder, regions=REGIONS, dim=DIM, metadata={}, shard_size=8) as writer:
        for number in range(IMAGES):
            shown = (number % 4, (number + 1 + number // 4 % 3) % 4)
            cells = 0.3 * random.normal(size=(REGIONS, DIM))
            for cell, kind in enumerate(shown):
                cells[cell] += kinds[kind]
                box = CELLS[cell] * SIDE + [2, -2, 2, 2]  # overlaps its cell by most, and the next by little
                rows.append((f"image {number}", PHRASES[kind], box.tolist()))
            cells[2] += 3 * kinds[shown[0]] + 3 * background
            writer.add(f"image {number}", cells.astype(np.float32), CELLS)
    rows.append(("image 0", "a thing of no box", [0.0, 0.0, 3.0, 3.0]))
    images = pd.DataFrame({"image_id": [f"image {n}" for n in range(IMAGES)], "width": SIDE, "height": SIDE})
    phrases = pd.DataFrame(rows, columns=["image_id", "phrase", "boxes"])
    phrases["boxes"] = [np.array([box], np.float32) for box in phrases["boxes"]]
    vectorizer = TFIDF(min_count=1)
    vectorizer.fit(PHRASES, seed=0)
    tables = Dataset(images, pd.DataFrame(), phrases, folder)
    return PhraseBoxes(tables, FeatureStore(folder), FittedVectorizer(vectorizer))


def truth() -> set[tuple[str, int]]:
    """Each phrase with its boxes, counted through the images."""
    return {
        (PHRASES[kind], number * REGIONS + cell)
        for number in range(IMAGES)
        for cell, kind in enumerate((number % 4, (number + 1 + number // 4 % 3) % 4))
    }


def test_own_boxes_are_those_of_the_tables(pairs: PhraseBoxes) -> None:
    assert pairs.phrases == sorted(PHRASES)
    assert {(pairs.phrases[row], box) for row, box in pairs.own.tolist()} == truth()
    for name, candidates in zip(pairs.phrases, pairs.candidates, strict=True):
        said_in = {box // REGIONS for phrase, box in truth() if phrase == name}
        assert candidates.tolist() == [REGIONS * image + cell for image in sorted(said_in) for cell in range(REGIONS)]


def test_near_boxes_are_no_negatives(tmp_path: Path) -> None:
    boxes = np.array([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.4], [0.5, 0.5, 1.0, 1.0]], np.float32)
    with FeatureWriter(tmp_path, regions=3, dim=2, metadata={}, shard_size=1) as writer:
        writer.add("a", np.array([[1, 0], [2, 1], [2, 1]], np.float32), boxes)
    phrases = pd.DataFrame({"image_id": ["a"], "phrase": ["a star"], "boxes": [np.array([[0, 0, 50, 50]], np.float32)]})
    images = pd.DataFrame({"image_id": ["a"], "width": 100, "height": 100})
    vectorizer = TFIDF(min_count=1)
    vectorizer.fit(["a star"], seed=0)
    tables = Dataset(images, pd.DataFrame(), phrases, tmp_path)
    pairs = PhraseBoxes(tables, FeatureStore(tmp_path), FittedVectorizer(vectorizer))
    assert (pairs.own.tolist(), pairs.correct) == ([[0, 0]], {(0, 0), (0, 1)})

    class LikesTheSecond:
        device = torch.device("cpu")

        def eval(self) -> None: ...

        def embed_images(self, regions: RegionBatch) -> torch.Tensor:
            return regions.features[:, 0]

        def embed_captions(self, text: Text) -> torch.Tensor:
            return torch.tensor([[0.0, 1.0]])

    assert [rows.tolist() for rows in pairs.hard_negatives(LikesTheSecond(), torch.Generator())] == [[2]]


def test_a_batch_matches_what_belongs_together(pairs: PhraseBoxes) -> None:
    rows = torch.tensor([[0, int(pairs.own[0, 1])], [-1, 5], [3, 2], [0, 2]])
    batch = pairs.batch(rows)
    boxes = sorted({int(pairs.own[0, 1]), 5, 2})
    assert batch.image_ids == [f"image {box // REGIONS}, region {box % REGIONS}" for box in boxes]
    assert batch.matches.tolist() == [[(pairs.phrases[row], box) in truth() for row in (0, 3)] for box in boxes]
    assert batch.regions.features.shape == (3, 1, DIM)
    np.testing.assert_array_equal(batch.regions.boxes[:, 0], CELLS[[box % REGIONS for box in boxes]])
    expected = pairs.reader.vectorize([pairs.phrases[0], pairs.phrases[3]]).values
    torch.testing.assert_close(batch.text.values, expected)


def test_more_of_both_views_joins_a_batch(pairs: PhraseBoxes) -> None:
    batches = PhraseSampler(pairs, seed=1, batch_size=8, boxes_each=99)(0)
    own, seen = {tuple(row) for row in pairs.own.tolist()}, []
    for rows in batches:
        drawn, more = rows[:8].tolist(), {tuple(row) for row in rows[8:].tolist()}
        seen += [tuple(row) for row in drawn]
        assert more <= own - {tuple(row) for row in drawn}
        # Every phrase has more boxes than a batch holds.
        assert {phrase for phrase, _ in more} == {phrase for phrase, _ in drawn}
    assert len(batches) > 1
    assert sorted(seen) == sorted(own)


def test_a_frequent_phrase_is_drawn_as_often_as_is_wanted(pairs: PhraseBoxes) -> None:
    sampler = PhraseSampler(pairs, seed=1, batch_size=1000, boxes_each=3)
    epochs = [{tuple(row) for row in sampler(epoch)[0][:12].tolist()} for epoch in range(4)]
    own = {tuple(row) for row in pairs.own.tolist()}
    for drawn in epochs:
        assert drawn <= own
        assert [sum(phrase == row for phrase, _ in drawn) for row in range(4)] == [3, 3, 3, 3]
    # Others each time.
    assert len(set.union(*epochs)) > 24


def test_fine_tuning_on_hard_negatives_finds_more_phrases(pairs: PhraseBoxes, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build_model(
        {"name": "TwoBranchModel", "dim": 8, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"},
        feature_dim=DIM,
        text_dim=pairs.reader.vectorize(["a"]).values.shape[1], text_format="sparse",
    )  # fmt: skip
    validation = PhraseValidator(pairs)

    def train(name: str, epochs: int, sampler: PhraseSampler, structure: float) -> float:
        loss = StructurePreservingLoss(visual_weight=structure, textual_weight=structure)
        history = fit(
            model, loss, pairs, validation, sampler=sampler, checkpoints=tmp_path / name, epochs=epochs,
            optimizer={"name": "Adam"}, learning_rate=0.02, max_grad_norm=2.0,
            seed=0,
        )  # fmt: skip
        return max(row["phrase_R@1"] for row in history)

    before = train("pairs", 8, PhraseSampler(pairs, seed=1, batch_size=16), 0.1)
    hard = torch.cat(pairs.hard_negatives(model, torch.Generator(), at_most=99)).tolist()
    few = pairs.hard_negatives(model, torch.Generator(), at_most=5)
    assert max(len(rows) for rows in few) == 5
    assert not {(pairs.phrases[row], box) for row, rows in enumerate(few) for box in rows.tolist()} & truth()
    drawn = torch.cat(list(PhraseSampler(pairs, seed=2, batch_size=16, model=model, drawn=2)(0)))
    added = drawn[drawn[:, 0] < 0][:, 1].tolist()
    assert added
    assert set(added) <= set(hard)
    after = train("hard", 5, PhraseSampler(pairs, seed=2, batch_size=16, model=model), 0.0)
    assert before < 90
    assert after > before + 5
