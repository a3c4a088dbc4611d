"""SemanticTripletLoss against loops over eq. (1)-(3)."""

import pytest
import torch
from torch import Tensor

from bifocal.losses import SemanticTripletLoss
from bifocal.scores import Scores

Matrix = list[list[float]]


def equation(
    visual: Matrix, cross: Matrix, relevance: Matrix, m: float, weights: tuple[float, float, float]
) -> float:
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
    images, texts = torch.nn.functional.normalize(
        torch.randn(2, size, 4, dtype=torch.float64), dim=2
    )
    return Scores(images @ texts.T, images @ images.T), torch.randint(-1, 2, (size, size))


@pytest.mark.parametrize(
    "weights", [(1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.0, 2.0)]
)
@pytest.mark.parametrize("size", [2, 3, 5, 17])
def test_semantic_triplet_is_eq_1_to_3(size: int, weights: tuple[float, float, float]) -> None:
    scores, relevance = example(size)
    loss = SemanticTripletLoss(0.2, *weights)(scores, relevance)
    assert scores.visual is not None
    expected = equation(
        scores.visual.tolist(), scores.cross.tolist(), relevance.tolist(), 0.2, weights
    )
    assert loss.item() == pytest.approx(expected)


def test_semantic_triplet_takes_false_as_irrelevant_in_a_boolean_matrix() -> None:
    scores, relevance = example(7)
    relevant = relevance > 0
    torch.testing.assert_close(
        SemanticTripletLoss()(scores, relevant),
        SemanticTripletLoss()(scores, torch.where(relevant, 1, -1)),
    )


def test_semantic_triplet_gradient() -> None:
    scores, relevance = example(5)
    assert scores.visual is not None
    assert torch.autograd.gradcheck(
        lambda cross, visual: SemanticTripletLoss(0.3)(Scores(cross, visual), relevance),
        (scores.cross.requires_grad_(), scores.visual.requires_grad_()),
    )


def test_semantic_triplet_without_triplets_has_no_gradient() -> None:
    scores, _ = example(3)
    scores.cross.requires_grad_()
    loss = SemanticTripletLoss()(scores, torch.ones(3, 3))
    loss.backward()
    assert loss.item() == 0
    assert scores.cross.grad is not None
    assert scores.cross.grad.abs().sum() == 0


def test_semantic_triplet_rejects_other_numbers_of_texts_and_missing_scores() -> None:
    with pytest.raises(ValueError, match="one text per image"):
        SemanticTripletLoss()(Scores(torch.zeros(2, 4), torch.eye(2)), torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"needs scores\.visual"):
        SemanticTripletLoss()(Scores(torch.eye(2)), torch.eye(2))


def test_semantic_triplet_explains_weights_that_disable_it() -> None:
    off = {"visual_weight": 0.0, "image_to_text_weight": 0.0, "text_to_image_weight": 0.0}
    assert "all 0" in " ".join(SemanticTripletLoss.conflicts(off))
    assert not list(SemanticTripletLoss.conflicts(off | {"visual_weight": 1.0}))
