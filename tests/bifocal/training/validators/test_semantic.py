"""SemanticValidator with embeddings of known order."""

import pytest
import torch
from sklearn.metrics import ndcg_score
from torch import nn

from bifocal.metrics import choose_queries
from bifocal.models import build_model
from bifocal.training.pairs import SemanticPairs
from bifocal.training.validators.semantic import SemanticValidator


def new_model(semantic: SemanticPairs) -> nn.Module:
    torch.manual_seed(0)
    ref = {"name": "TwoBranchModel", "dim": 8, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"}
    pairs = semantic.pairs
    return build_model(ref, feature_dim=pairs.features.dim, text_dim=pairs.text.dim, text_format="sparse")


def test_semantic_validator_measures_ndcg_on_a_subset(semantic: SemanticPairs) -> None:
    """scikit-learn's NDCG of each of 12 drawn images among the other 11."""
    model = new_model(semantic)
    rows = choose_queries(40, seed=0, count=12)
    images, texts = semantic.embed_images(model, rows).numpy(), semantic.vectors[rows.numpy()].toarray()
    scores, relevance = images @ images.T, texts @ texts.T
    others = [[other for other in range(12) if other != query] for query in range(12)]
    ndcg = [ndcg_score(*(s[query, others[query]][None] for s in (relevance, scores)), k=8) for query in range(12)]
    assert SemanticValidator(semantic, images=12)(model) == {"ndcg": pytest.approx(100 * sum(ndcg) / 12)}
    assert SemanticValidator(semantic)(model) != SemanticValidator(semantic, images=12)(model)


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

    assert SemanticValidator(semantic)(Ideal())["ndcg"] == pytest.approx(100)


def test_semantic_validator_rejects_a_model_without_single_vectors(semantic: SemanticPairs) -> None:
    with pytest.raises(TypeError, match="no single vector"):
        SemanticValidator(semantic)(nn.Identity())
