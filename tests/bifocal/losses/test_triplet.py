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

Matrix = list[list[float]]
ALL: tuple[Negatives, ...] = ("all", "random", "hardest", "semi_hard")


def example(images: int, captions_per_image: int, seed: int | None = None) -> tuple[Tensor, Tensor]:
    """Cosines, also negative ones of positive pairs."""
    generator = torch.Generator().manual_seed(
        images * 10 + captions_per_image if seed is None else seed
    )
    scores = (
        2
        * torch.rand(images, images * captions_per_image, generator=generator, dtype=torch.float64)
        - 1
    )
    return scores, torch.eye(images, dtype=torch.bool).repeat_interleave(captions_per_image, dim=1)


def negatives_of(
    scores: Matrix, matches: list[list[bool]]
) -> list[tuple[float, list[float], list[float]]]:
    """Each positive with the negative captions of its image and the negative images of its
    caption."""
    return [
        (
            positive,
            [row[k] for k in range(len(row)) if not matches[n][k]],
            [scores[k][m] for k in range(len(scores)) if not matches[k][m]],
        )
        for n, row in enumerate(scores)
        for m, positive in enumerate(row)
        if matches[n][m]
    ]


def eq_5(scores: Matrix, matches: list[list[bool]], margin: float) -> float:
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
    scores, matches = example(images, captions_per_image)
    loss = TripletLoss(margin=0.2)(Scores(scores), matches)
    assert loss.item() == pytest.approx(eq_5(scores.tolist(), matches.tolist(), 0.2))


@given(st.permutations(range(5)))
def test_one_match_per_row_in_any_order(order: list[int]) -> None:
    scores, _ = example(5, 1)
    matches = torch.eye(5, dtype=torch.bool)[order]
    assert TripletLoss(0.2)(Scores(scores), matches).item() == pytest.approx(
        eq_5(scores.tolist(), matches.tolist(), 0.2)
    )


@pytest.mark.parametrize("captions_per_image", [1, 3])
@pytest.mark.parametrize("images", [2, 3, 17])
def test_triplet_semi_hard_is_the_nearest_negative_below(
    images: int, captions_per_image: int
) -> None:
    scores, matches = example(images, captions_per_image)
    loss = TripletLoss(margin=0.4, negatives="semi_hard")(Scores(scores), matches)
    positives = negatives_of(scores.tolist(), matches.tolist())
    costs = [
        max(0.0, 0.4 - p + semi_hard(p, group)) for p, *groups in positives for group in groups
    ]
    assert loss.item() == pytest.approx(sum(costs) / len(positives))


def test_triplet_random_selects_each_negative_equally_often() -> None:
    """Its mean over many draws is the sum over all negatives, divided by their number."""
    torch.manual_seed(0)
    scores, matches = example(5, 2)
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
    scores, matches = example(4, 2)

    def value(s: Tensor) -> Tensor:
        torch.manual_seed(3)
        loss: Tensor = TripletLoss(margin=0.5, negatives=negatives)(Scores(s), matches)
        return loss

    assert torch.autograd.gradcheck(value, scores.requires_grad_())


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 12), shift=st.floats(-5, 5))
def test_triplet_is_invariant_to_shift_transposition_and_order(
    seed: int, size: int, shift: float
) -> None:
    scores, matches = example(size, 1, seed)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    expected = TripletLoss()(Scores(scores), matches)
    for same in (scores + shift, scores.T, scores[order][:, order]):
        torch.testing.assert_close(TripletLoss()(Scores(same), matches), expected)


@pytest.mark.parametrize("negatives", ALL)
def test_triplet_has_no_negatives_among_captions_of_one_image(negatives: Negatives) -> None:
    scores = torch.tensor([[0.9, -0.9]], requires_grad=True)
    loss = TripletLoss(negatives=negatives)(Scores(scores), torch.tensor([[True, True]]))
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert scores.grad.abs().sum() == 0


def test_triplet_rejects_unknown_negatives() -> None:
    with pytest.raises(ValueError, match="TripletLoss has all, random, hardest, semi_hard"):
        build("bifocal.losses", {"name": "TripletLoss", "negatives": "hard"})
