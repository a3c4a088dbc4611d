"""The semantic triplet loss against loops over eq. (1)-(3)."""

import pytest
import torch
from torch import Tensor

from bifocal.losses import SemanticTripletLoss
from bifocal.scores import Scores

Matrix = list[list[float]]


def equation(visual: Matrix, cross: Matrix, relevance: Matrix, m: float, weights: tuple[float, float, float]) -> float:
    """The mean over (q, d+, d-); cross[a][b] is the dot product of image a and text b."""
    total, count = 0.0, 0
    size = len(visual)
    for q in range(size):
        for plus in range(size):
            for minus in range(size):
                if q in (plus, minus) or relevance[q][plus] <= 0 or relevance[q][minus] >= 0:
                    continue
                count += 1
                total += weights[0] * 0.5 * max(0.0, m - visual[q][plus] + visual[q][minus])
                total += weights[1] * 0.5 * max(0.0, m - cross[q][plus] + cross[q][minus])
                total += weights[2] * 0.5 * max(0.0, m - cross[plus][q] + cross[minus][q])
    return total / count if count else 0.0


def example(size: int) -> tuple[Scores, Tensor]:
    torch.manual_seed(size)
    images, texts = torch.nn.functional.normalize(torch.randn(2, size, 4, dtype=torch.float64), dim=2)
    return Scores(images @ texts.T, images @ images.T), torch.randint(-1, 2, (size, size))


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.0, 2.0)])
@pytest.mark.parametrize("size", [2, 3, 5, 17])
def test_loss_is_its_equation(size: int, weights: tuple[float, float, float]) -> None:
    scores, relevance = example(size)
    found = SemanticTripletLoss(0.2, *weights)(scores, relevance)
    assert scores.visual is not None
    expected = equation(scores.visual.tolist(), scores.cross.tolist(), relevance.tolist(), 0.2, weights)
    assert found.item() == pytest.approx(expected)


def test_what_is_not_relevant_is_irrelevant_in_a_boolean_matrix() -> None:
    scores, relevance = example(7)
    known = relevance > 0
    torch.testing.assert_close(
        SemanticTripletLoss()(scores, known), SemanticTripletLoss()(scores, torch.where(known, 1, -1))
    )


def test_gradient() -> None:
    scores, relevance = example(5)
    assert scores.visual is not None
    assert torch.autograd.gradcheck(
        lambda cross, visual: SemanticTripletLoss(0.3)(Scores(cross, visual), relevance),
        (scores.cross.requires_grad_(), scores.visual.requires_grad_()),
    )


def test_without_triplets_there_is_nothing_to_learn() -> None:
    scores, _ = example(3)
    scores.cross.requires_grad_()
    value = SemanticTripletLoss()(scores, torch.ones(3, 3))
    value.backward()
    assert value.item() == 0
    assert scores.cross.grad is not None
    assert scores.cross.grad.abs().sum() == 0


def test_one_text_for_each_image() -> None:
    with pytest.raises(ValueError, match="one text for each image"):
        SemanticTripletLoss()(Scores(torch.zeros(2, 4), torch.eye(2)), torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"needs scores\.visual"):
        SemanticTripletLoss()(Scores(torch.eye(2)), torch.eye(2))
