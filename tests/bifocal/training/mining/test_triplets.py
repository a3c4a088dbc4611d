"""Mining of triplets against loops over sections 5.1 and 6.1."""

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.losses import SemanticTripletLoss
from bifocal.training.mining import mine_triplets, relevant_images
from bifocal.training.pairs import SemanticPairs


def test_relevant_images_are_the_nearest_texts(semantic: SemanticPairs) -> None:
    text = semantic.texts(torch.arange(40)).values.double().numpy()
    nearest = relevant_images(semantic, 3)
    for image in range(40):
        scores = [float(text[image] @ text[other]) if other != image else -1.0 for other in range(40)]
        assert [scores[row] for row in nearest[image].tolist()] == pytest.approx(sorted(scores, reverse=True)[:3])


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 0.5, 2.0)], ids=["V", "WSABIE", "V+T"])
def test_mine_triplets_returns_the_triplets_of_the_largest_loss(weights: tuple[float, float, float]) -> None:
    torch.manual_seed(0)
    images, texts = normalize(torch.randn(2, 12, 4, dtype=torch.float64), dim=2)
    relevance = torch.rand(3, 12) < 0.3
    relevance[:, :3].fill_diagonal_(False)
    phi, theta, expected = images.numpy(), texts.numpy(), set()

    def loss(q: int, plus: int, minus: int) -> float:
        visual = max(0, 0.4 - phi[q] @ phi[plus] + phi[q] @ phi[minus])
        image_to_text = max(0, 0.4 - phi[q] @ theta[plus] + phi[q] @ theta[minus])
        text_to_image = max(0, 0.4 - theta[q] @ phi[plus] + theta[q] @ phi[minus])
        return float(weights[0] * visual + weights[1] * image_to_text + weights[2] * text_to_image)

    for q in range(3):
        irrelevant = [minus for minus in range(12) if minus != q and not relevance[q, minus]]
        for plus in relevance[q].nonzero().flatten().tolist():
            hardest = sorted(irrelevant, key=lambda minus: -loss(q, plus, minus))[:2]
            expected |= {(q, plus, minus) for minus in hardest if loss(q, plus, minus) > 0}
    parts = SemanticTripletLoss(0.4, *weights).weighted(
        images[:3] @ images.T, images[:3] @ texts.T, texts[:3] @ images.T
    )
    assert len(parts) == sum(weight > 0 for weight in weights)
    triplets = mine_triplets(parts, relevance, margin=0.4, triplets_per_pair=2)
    assert expected
    assert {tuple(row) for row in triplets.tolist()} == expected
    assert len(triplets) == len(expected)
