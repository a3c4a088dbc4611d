"""Mining of triplets against loops over sections 5.1 and 6.1."""

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.training.mining import mine_triplets, relevant_images
from bifocal.training.pairs import SemanticPairs


def test_relevant_images_are_the_nearest_texts(semantic: SemanticPairs) -> None:
    text = semantic.texts(torch.arange(40)).values.double().numpy()
    nearest = relevant_images(semantic, 3)
    for image in range(40):
        scores = [float(text[image] @ text[other]) if other != image else -1.0 for other in range(40)]
        assert [scores[row] for row in nearest[image].tolist()] == pytest.approx(sorted(scores, reverse=True)[:3])


def test_mine_triplets_returns_the_triplets_of_the_largest_loss() -> None:
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(12, 4, dtype=torch.float64), dim=1)
    relevance = torch.rand(3, 12) < 0.3
    relevance[:, :3].fill_diagonal_(False)
    vectors, expected = embeddings.numpy(), set()
    for q in range(3):
        for plus in range(12):
            if not relevance[q, plus]:
                continue
            costs = {
                minus: 0.4 - vectors[q] @ vectors[plus] + vectors[q] @ vectors[minus]
                for minus in range(12)
                if minus != q and not relevance[q, minus]
            }
            hardest = sorted(costs, key=lambda minus: -costs[minus])[:2]
            expected |= {(q, plus, minus) for minus in hardest if costs[minus] > 0}
    triplets = mine_triplets(embeddings, relevance, 3, margin=0.4, triplets_per_pair=2)
    assert expected
    assert {tuple(row) for row in triplets.tolist()} == expected
    assert len(triplets) == len(expected)
