"""Hard-negative boxes against a loop over section 3.3."""

from typing import Any

import pytest
import torch

from bifocal.models import build_model
from bifocal.training.mining import hard_boxes, hard_negative_boxes
from bifocal.training.pairs import PhraseBoxPairs


@pytest.fixture(scope="module")
def model(phrase_boxes: PhraseBoxPairs) -> Any:
    torch.manual_seed(0)
    text_dim = phrase_boxes.vectorizer.vectorize(["a"]).values.shape[1]
    ref = {"name": "TwoBranchModel", "dim": 8, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"}
    return build_model(ref, feature_dim=12, text_dim=text_dim, text_format="sparse").eval()


def closer_boxes(model: Any, pairs: PhraseBoxPairs, positives: list[list[int]]) -> dict[int, set[int]]:
    """Proposals closer to a phrase than the farthest of its ground-truth boxes, by Euclidean distance."""
    hard: dict[int, set[int]] = {}
    for row in sorted({phrase for phrase, _ in positives}):
        with torch.no_grad():
            query = model.embed_captions(pairs.vectorizer.vectorize([pairs.phrases[row]]))[0]
            boxes = [box for phrase, box in positives if phrase == row]
            farthest = max(float((model.embed_images(pairs.boxes(torch.tensor([b])))[0] - query).norm()) for b in boxes)
            hard[row] = set()
            for image in [image for phrase, image in pairs.phrase_images.tolist() if phrase == row]:
                for box in range(image * pairs.regions, image * pairs.regions + 6):
                    distance = (model.embed_images(pairs.boxes(torch.tensor([box])))[0] - query).norm()
                    correct = bool(pairs.overlaps(torch.tensor([row]), torch.tensor([box])))
                    if not correct and float(distance) < farthest - 1e-6:
                        hard[row].add(box)
    return hard


def test_hard_negative_boxes_are_closer_than_a_ground_truth_box(model: Any, phrase_boxes: PhraseBoxPairs) -> None:
    positives = phrase_boxes.resampled(2)
    rows = hard_negative_boxes(model, phrase_boxes, positives, torch.Generator(), max_negatives=999)
    expected = closer_boxes(model, phrase_boxes, positives.tolist())
    assert sum(map(len, expected.values())) > 20
    assert sorted(map(tuple, rows.tolist())) == sorted((row, box) for row in expected for box in expected[row])


def test_hard_negative_boxes_draw_at_most_max_negatives(
    model: Any, phrase_boxes: PhraseBoxPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    positives = phrase_boxes.resampled(2)
    everything = hard_negative_boxes(model, phrase_boxes, positives, torch.Generator(), max_negatives=999)
    counts = everything[:, 0].bincount(minlength=4)

    def draw(seed: int) -> torch.Tensor:
        return hard_negative_boxes(model, phrase_boxes, positives, torch.Generator().manual_seed(seed), max_negatives=5)

    few = draw(1)
    assert few[:, 0].bincount(minlength=4).tolist() == counts.clamp(max=5).tolist()
    assert {tuple(row) for row in few.tolist()} < {tuple(row) for row in everything.tolist()}
    assert not few.equal(draw(2))
    monkeypatch.setattr(hard_boxes, "MAX_WAITING", 7)  # drawn after every few images, the boxes are the same
    assert few.equal(draw(1))
