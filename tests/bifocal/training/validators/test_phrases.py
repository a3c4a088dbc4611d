"""PhraseValidator against a loop over phrases and images."""

import pytest
import torch

from bifocal.embedding import BATCH
from bifocal.models import build_model
from bifocal.training.pairs import PhraseBoxPairs
from bifocal.training.validators.phrases import PhraseValidator


def test_phrase_validator_counts_correct_best_boxes(phrase_boxes: PhraseBoxPairs) -> None:
    torch.manual_seed(0)
    text_dim = phrase_boxes.vectorizer.vectorize(["a"]).values.shape[1]
    ref = {"name": "TwoBranchModel", "dim": 8, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"}
    model = build_model(ref, feature_dim=12, text_dim=text_dim, text_format="sparse").eval()
    hits = []
    with torch.no_grad():
        for row, candidates in enumerate(phrase_boxes.candidates):
            assert len(candidates) < BATCH
            scores = (
                model.embed_images(phrase_boxes.boxes(candidates))
                @ model.embed_captions(phrase_boxes.texts(torch.tensor([row]))).T
            )
            for image in {box // phrase_boxes.regions for box in candidates.tolist()}:
                boxes = [i for i, box in enumerate(candidates.tolist()) if box // phrase_boxes.regions == image]
                best = max(boxes, key=lambda i, scores=scores: float(scores[i]))
                hits.append((row, int(candidates[best])) in phrase_boxes.overlapping)
    assert PhraseValidator(phrase_boxes)(model) == {"phrase_R@1": pytest.approx(100 * sum(hits) / len(hits))}
