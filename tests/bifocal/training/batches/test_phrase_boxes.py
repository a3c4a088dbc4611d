"""Batches of phrases and boxes, and a second training phase on hard negatives."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.losses import StructurePreservingLoss
from bifocal.models import build_model
from bifocal.training import fit
from bifocal.training.batches import PhraseBoxes
from bifocal.training.pairs import PhraseBoxPairs
from bifocal.training.validators.phrases import PhraseValidator


def new_model(pairs: PhraseBoxPairs) -> Any:
    torch.manual_seed(0)
    return build_model(
        {"name": "TwoBranchModel", "dim": 8, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"},
        feature_dim=12,
        text_dim=pairs.vectorizer.vectorize(["a"]).values.shape[1],
        text_format="sparse",
    )


def rows_of(pairs: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(row) for row in pairs.tolist()}


def test_phrase_boxes_hold_each_pair_once_with_neighbors_in_both_views(phrase_boxes: PhraseBoxPairs) -> None:
    sampler = PhraseBoxes(batch_size=8, boxes_per_phrase=99).sampler(phrase_boxes, new_model(phrase_boxes), seed=1)
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
    sampler = PhraseBoxes(batch_size=1000, boxes_per_phrase=3).sampler(phrase_boxes, new_model(phrase_boxes), seed=1)
    epochs = [rows_of(sampler(epoch)[0][:12]) for epoch in range(4)]
    for drawn in epochs:
        assert drawn <= rows_of(phrase_boxes.positives)
        assert [sum(phrase == row for phrase, _ in drawn) for row in range(4)] == [3, 3, 3, 3]
    # The boxes differ from epoch to epoch.
    assert len(set.union(*epochs)) > 24


def test_phrase_boxes_with_hard_negatives_localize_more_phrases(phrase_boxes: PhraseBoxPairs, tmp_path: Path) -> None:
    model = new_model(phrase_boxes)

    def train(name: str, epochs: int, batches: PhraseBoxes, seed: int, structure: float) -> float:
        loss = StructurePreservingLoss(visual_weight=structure, textual_weight=structure)
        history = fit(
            model, loss, phrase_boxes, PhraseValidator(phrase_boxes),
            sampler=batches.sampler(phrase_boxes, model, seed), checkpoints=tmp_path / name, epochs=epochs,
            optimizer="Adam", learning_rate=0.02, seed=0,
        )  # fmt: skip
        return max(row["phrase_R@1"] for row in history)

    before = train("pairs", 8, PhraseBoxes(batch_size=16), 1, 0.1)
    hard = torch.cat(phrase_boxes.hard_negatives(model, torch.Generator(), max_negatives=99)).tolist()
    few = phrase_boxes.hard_negatives(model, torch.Generator(), max_negatives=5)
    assert max(len(rows) for rows in few) == 5
    mined = {(row, box) for row, boxes in enumerate(few) for box in boxes.tolist()}
    assert not mined & rows_of(phrase_boxes.positives)
    batches = PhraseBoxes(batch_size=16, negatives_per_phrase=2).sampler(phrase_boxes, model, seed=2)(0)
    added = torch.cat([rows[rows[:, 0] < 0][:, 1] for rows in batches]).tolist()
    assert added
    assert set(added) <= set(hard)
    after = train("hard", 5, PhraseBoxes(batch_size=16, negatives_per_phrase=5), 2, 0.0)
    assert before < 90
    assert after > before + 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"negatives_per_phrase": 9, "max_negatives": 5}, "negatives_per_phrase is 9: expected 0 to 5"),
        ({"boxes_per_phrase": 0}, "boxes_per_phrase is 0: expected 1 or more"),
        ({"max_negatives": 20}, "no negatives are mined: set negatives_per_phrase, or leave max_negatives out"),
    ],
)
def test_phrase_boxes_explain_contradictory_arguments(arguments: dict[str, int], message: str) -> None:
    assert message in " ".join(PhraseBoxes.conflicts(arguments))
