"""TripletLoss against loops over its equations, for each selection of negatives."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bifocal.losses import TripletLoss
from bifocal.losses.triplet import Negatives
from bifocal.registry import build
from bifocal.scores import Scores
from tests.bifocal.losses.pairs import Matches, Matrix, cosines, negatives_of

ALL: tuple[Negatives, ...] = ("all", "random", "hardest", "semi_hard")


def eq_5(scores: Matrix, matches: Matches, margin: float) -> float:
    """Eq. (5)-(6) of BEAN, the mean over positive pairs."""
    positives = negatives_of(scores, matches)
    costs = [
        max(0.0, margin - p + n) for p, captions, images in positives for n in captions + images
    ]
    return sum(costs) / len(positives)


def semi_hard(positive: float, negatives: list[float]) -> float:
    """FaceNet, section 3.2: the hardest negative below the positive; the easiest negative if none
    is below."""
    below = [negative for negative in negatives if negative < positive]
    return max(below) if below else min(negatives)


@pytest.mark.parametrize("captions_per_image", [1, 2, 5])
@pytest.mark.parametrize("images", [1, 2, 3, 17])
def test_triplet_is_eq_5(images: int, captions_per_image: int) -> None:
    scores, matches = cosines(images, captions_per_image, 10 * images + captions_per_image)
    loss = TripletLoss(margin=0.2)(Scores(scores), matches)
    assert loss.item() == pytest.approx(eq_5(scores.tolist(), matches.tolist(), 0.2))


@given(st.permutations(range(5)))
def test_one_match_per_row_in_any_order(order: list[int]) -> None:
    scores, _ = cosines(5, 1, 51)
    matches = torch.eye(5, dtype=torch.bool)[order]
    assert TripletLoss(0.2)(Scores(scores), matches).item() == pytest.approx(
        eq_5(scores.tolist(), matches.tolist(), 0.2)
    )


@pytest.mark.parametrize("captions_per_image", [1, 3])
@pytest.mark.parametrize("images", [2, 3, 17])
def test_triplet_semi_hard_is_the_nearest_negative_below(
    images: int, captions_per_image: int
) -> None:
    scores, matches = cosines(images, captions_per_image, 10 * images + captions_per_image)
    loss = TripletLoss(margin=0.4, negatives="semi_hard")(Scores(scores), matches)
    positives = negatives_of(scores.tolist(), matches.tolist())
    costs = [
        max(0.0, 0.4 - p + semi_hard(p, group)) for p, *groups in positives for group in groups
    ]
    assert loss.item() == pytest.approx(sum(costs) / len(positives))


def test_triplet_random_selects_each_negative_equally_often() -> None:
    """Its mean over many draws is the sum over all negatives, divided by their number."""
    torch.manual_seed(0)
    scores, matches = cosines(5, 2, 52)
    loss = TripletLoss(margin=0.5, negatives="random")
    drawn = torch.stack([loss(Scores(scores), matches) for _ in range(2000)])
    expected = sum(
        sum(max(0.0, 0.5 - positive + negative) for negative in group) / len(group)
        for positive, *groups in negatives_of(scores.tolist(), matches.tolist())
        for group in groups
    )
    assert float(drawn.mean()) == pytest.approx(
        expected / 10, abs=4 * float(drawn.std()) / 2000**0.5
    )
    assert drawn.unique().numel() > 100


@pytest.mark.parametrize("negatives", ALL)
def test_triplet_gradient(negatives: Negatives) -> None:
    scores, matches = cosines(4, 2, 42)

    def value(s: Tensor) -> Tensor:
        torch.manual_seed(3)
        loss: Tensor = TripletLoss(margin=0.5, negatives=negatives)(Scores(s), matches)
        return loss

    assert torch.autograd.gradcheck(value, scores.requires_grad_())


def test_triplet_rejects_unknown_negatives() -> None:
    with pytest.raises(ValueError, match="TripletLoss has all, random, hardest, semi_hard"):
        build("bifocal.losses", {"name": "TripletLoss", "negatives": "hard"})
