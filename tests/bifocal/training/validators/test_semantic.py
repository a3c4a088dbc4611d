"""SemanticValidator with embeddings of known order."""

import pytest
import torch
from torch import nn

from bifocal.models import build_model
from bifocal.training.pairs import SemanticPairs
from bifocal.training.validators.recall import RecallValidator
from bifocal.training.validators.semantic import SemanticValidator


def new_model(semantic: SemanticPairs) -> nn.Module:
    torch.manual_seed(0)
    ref = {"name": "TwoBranchModel", "dim": 8, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"}
    pairs = semantic.pairs
    return build_model(ref, feature_dim=pairs.features.dim, text_dim=pairs.text.dim, text_format="sparse")


def test_semantic_validator_adds_ndcg_to_the_recalls(semantic: SemanticPairs) -> None:
    model = new_model(semantic)
    metrics, recalls = SemanticValidator(semantic)(model), RecallValidator(semantic.pairs)(model)
    assert metrics.keys() == recalls.keys() | {"ndcg"}
    for name, value in recalls.items():
        assert metrics[name] == pytest.approx(value)
    assert 0 < metrics["ndcg"] < 100


def test_semantic_validator_gives_images_that_embed_their_texts_full_marks(semantic: SemanticPairs) -> None:
    texts = semantic.texts(torch.arange(len(semantic))).values

    class Ideal(nn.Module):
        single_vector = True
        device = torch.device("cpu")
        shown = 0

        def embed_images(self, regions: tuple[torch.Tensor, ...]) -> torch.Tensor:
            rows = slice(self.shown, self.shown + len(regions[0]))
            self.shown += len(regions[0])
            return texts[rows]

        def embed_captions(self, text: tuple[torch.Tensor, ...]) -> torch.Tensor:
            return text[0]

    assert SemanticValidator(semantic)(Ideal())["ndcg"] == pytest.approx(100)


def test_semantic_validator_rejects_a_model_without_single_vectors(semantic: SemanticPairs) -> None:
    with pytest.raises(TypeError, match="no single vector"):
        SemanticValidator(semantic)(nn.Identity())
