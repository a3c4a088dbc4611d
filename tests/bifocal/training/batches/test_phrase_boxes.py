"""Batches of phrases and boxes, and a second training phase on hard negatives."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.losses import StructurePreservingLoss
from bifocal.models import build_model
from bifocal.serialization import read_tensors
from bifocal.training import TrainingPhase, fit
from bifocal.training.batches import PhraseBoxes
from bifocal.training.batches.base import PreparedBatches
from bifocal.training.batches.phrase_boxes import PhraseBoxSampler
from bifocal.training.phrase_pairs import PhraseBoxPairs
from bifocal.training.validators import phrase_recall


def new_model(pairs: PhraseBoxPairs) -> Any:
    torch.manual_seed(0)
    return build_model(
        {
            "name": "TwoBranchModel",
            "dim": 8,
            "image_encoder": "LinearEncoder",
            "text_encoder": "BagOfWordsEncoder",
        },
        feature_dim=12,
        text_dim=pairs.vectorizer.vectorize(["a"]).values.shape[1],
        text_format="sparse",
    )


def rows_of(pairs: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(row) for row in pairs.tolist()}


def test_phrase_boxes_hold_each_pair_once_with_neighbors_in_both_views(
    phrase_boxes: PhraseBoxPairs,
) -> None:
    sampler = PhraseBoxSampler(
        PhraseBoxes(batch_size=8, boxes_per_phrase=99),
        phrase_boxes,
        new_model(phrase_boxes),
        seed=1,
    )
    positives, seen = rows_of(phrase_boxes.positives), []
    epoch = sampler(0)
    for rows in epoch:
        drawn, more = rows_of(rows[:8]), rows_of(rows[8:])
        seen += rows[:8].tolist()
        assert more <= positives - drawn
        # Every phrase has more boxes than a batch holds.
        assert {phrase for phrase, _ in more} == {phrase for phrase, _ in drawn}
    assert len(epoch) > 1
    assert sorted(map(tuple, seen)) == sorted(positives)


def test_phrase_boxes_limit_the_boxes_of_a_frequent_phrase(phrase_boxes: PhraseBoxPairs) -> None:
    sampler = PhraseBoxSampler(
        PhraseBoxes(batch_size=1000, boxes_per_phrase=3),
        phrase_boxes,
        new_model(phrase_boxes),
        seed=1,
    )
    for epoch in range(3):
        (rows,) = sampler(epoch)
        assert rows_of(rows) == rows_of(phrase_boxes.resampled(3))


def test_phrase_boxes_with_hard_negatives_localize_more_phrases(
    phrase_boxes: PhraseBoxPairs, tmp_path: Path
) -> None:
    model = new_model(phrase_boxes)

    def train(name: str, epochs: int, batches: PhraseBoxes, seed: int, structure: float) -> float:
        loss = StructurePreservingLoss(visual_weight=structure, textual_weight=structure)
        sampler = PhraseBoxSampler(batches, phrase_boxes, model, seed)
        history = fit(
            model,
            TrainingPhase(batches, loss, epochs=epochs, learning_rate=0.02),
            PreparedBatches(phrase_boxes, sampler, sampler.begin),
            partial(phrase_recall, phrase_boxes),
            checkpoints=tmp_path / name,
        )
        return max(row["phrase_R@1"] for row in history)

    before = train("pairs", 8, PhraseBoxes(batch_size=16), 1, 0.1)
    after = train("hard", 5, PhraseBoxes(batch_size=16, negatives_per_phrase=5), 2, 0.0)
    assert before < 90
    assert after > before + 5


def test_hard_boxes_are_recorded_once(phrase_boxes: PhraseBoxPairs, tmp_path: Path) -> None:
    model, batches = new_model(phrase_boxes), PhraseBoxes(batch_size=16, negatives_per_phrase=2)
    sampler = PhraseBoxSampler(batches, phrase_boxes, model, seed=2)
    sampler.begin(tmp_path)
    recorded = read_tensors(tmp_path / "hard_boxes.safetensors")[0]["hard_boxes"]
    assert not rows_of(recorded) & rows_of(phrase_boxes.positives)
    epoch = sampler(3)
    for rows in epoch:
        phrases = set(rows[:16, 0].tolist())
        added = rows[16:]
        assert (added[:, 0] == -1).all()
        of_phrases = {box for phrase, box in recorded.tolist() if phrase in phrases}
        assert set(added[:, 1].tolist()) <= of_phrases
        assert len(added) <= 2 * len(phrases)
    assert any((rows < 0).any() for rows in epoch)
    # A model that has changed, and a process that resumes, keep them.
    torch.nn.init.normal_(model.image_encoder.projection.weight)
    resumed = PhraseBoxSampler(batches, phrase_boxes, model, seed=2)
    resumed.begin(tmp_path)
    assert all(ours.equal(theirs) for ours, theirs in zip(resumed(3), epoch, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"negatives_per_phrase": 9, "max_negatives": 5},
            "negatives_per_phrase is 9: expected 0 to 5",
        ),
        ({"boxes_per_phrase": 0}, "boxes_per_phrase is 0: expected 1 or more"),
        (
            {"max_negatives": 20},
            "no negatives are mined: set negatives_per_phrase, or leave max_negatives out",
        ),
    ],
)
def test_phrase_boxes_explain_contradictory_arguments(
    arguments: dict[str, int], message: str
) -> None:
    assert message in " ".join(PhraseBoxes.conflicts(arguments))
