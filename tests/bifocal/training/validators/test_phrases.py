"""PhraseValidator against a loop over phrases and images."""

import pytest
import torch

from bifocal.models import build_model
from bifocal.training.pairs import PhraseBoxPairs
from bifocal.training.validators.phrases import PhraseValidator


def test_phrase_validator_counts_correct_best_proposals(phrase_boxes: PhraseBoxPairs) -> None:
    torch.manual_seed(0)
    text_dim = phrase_boxes.vectorizer.vectorize(["a"]).values.shape[1]
    ref = {"name": "TwoBranchModel", "dim": 8, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"}
    model = build_model(ref, feature_dim=12, text_dim=text_dim, text_format="sparse").eval()
    hits = []
    with torch.no_grad():
        for row, phrase in enumerate(phrase_boxes.phrases):
            query = model.embed_captions(phrase_boxes.vectorizer.vectorize([phrase]))[0]
            for image in [image for of, image in phrase_boxes.phrase_images.tolist() if of == row]:
                proposals = image * phrase_boxes.regions + torch.arange(6)
                scores = (model.embed_images(phrase_boxes.boxes(proposals)) @ query).tolist()
                best = proposals[scores.index(max(scores))]
                hits.append(bool(phrase_boxes.overlaps(torch.tensor([row]), best)))
    assert any(hits)
    assert len(hits) == 24 * 2 + 1
    assert PhraseValidator(phrase_boxes)(model) == {"phrase_R@1": pytest.approx(100 * sum(hits) / len(hits))}
