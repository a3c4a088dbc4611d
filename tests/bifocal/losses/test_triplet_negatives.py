"""The choices of negatives of the triplet loss, against a loop over positive pairs."""

import pytest
import torch
from torch import Tensor

from bifocal.losses import HardestTripletLoss, TripletLoss
from bifocal.scores import Scores

Matrix = list[list[float]]


def example(images: int, captions_each: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(images * 10 + captions_each)
    scores = 2 * torch.rand(images, images * captions_each, generator=generator, dtype=torch.float64) - 1
    return scores, torch.eye(images, dtype=torch.bool).repeat_interleave(captions_each, dim=1)


def semi_hard(positive: float, negatives: list[float]) -> float:
    """FaceNet 3.2: the hardest of those that are farther than the positive; the easiest if none is."""
    below = [negative for negative in negatives if negative < positive]
    return max(below) if below else min(negatives)


def semi_hard_equation(scores: Matrix, matches: list[list[bool]], margin: float) -> float:
    total, pairs = 0.0, 0
    for n, row in enumerate(scores):
        for m, positive in enumerate(row):
            if matches[n][m]:
                pairs += 1
                captions = [row[k] for k in range(len(row)) if not matches[n][k]]
                images = [scores[k][m] for k in range(len(scores)) if not matches[k][m]]
                for negatives in (captions, images):
                    total += max(0.0, margin - positive + semi_hard(positive, negatives))
    return total / pairs


@pytest.mark.parametrize("captions_each", [1, 3])
@pytest.mark.parametrize("images", [2, 3, 17])
def test_semi_hard_is_the_nearest_below(images: int, captions_each: int) -> None:
    scores, matches = example(images, captions_each)
    found = TripletLoss(margin=0.4, negatives="semi_hard")(Scores(scores), matches)
    assert found.item() == pytest.approx(semi_hard_equation(scores.tolist(), matches.tolist(), 0.4))


@pytest.mark.parametrize("captions_each", [1, 3])
@pytest.mark.parametrize("images", [1, 2, 17])
def test_hardest_is_the_loss_of_that_name(images: int, captions_each: int) -> None:
    scores, matches = example(images, captions_each)
    found = TripletLoss(margin=0.3, negatives="hardest")(Scores(scores), matches)
    torch.testing.assert_close(found, HardestTripletLoss(margin=0.3)(Scores(scores), matches))


def test_random_negatives_are_all_negatives_one_at_a_time() -> None:
    """Its mean over many draws is the sum over all negatives, divided by their number."""
    torch.manual_seed(0)
    scores, matches = example(5, 2)
    loss = TripletLoss(margin=0.5, negatives="random")
    drawn = torch.stack([loss(Scores(scores), matches) for _ in range(2000)])
    expected = 0.0
    for n in range(5):
        for m in range(10):
            if matches[n, m]:
                costs = (0.5 - scores[n, m] + scores[n][~matches[n]]).clamp(min=0)
                expected += float(costs.mean())
                costs = (0.5 - scores[n, m] + scores[:, m][~matches[:, m]]).clamp(min=0)
                expected += float(costs.mean())
    assert float(drawn.mean()) == pytest.approx(expected / 10, abs=4 * float(drawn.std()) / 2000**0.5)
    assert drawn.unique().numel() > 100


@pytest.mark.parametrize("negatives", ["hardest", "semi_hard", "random"])
def test_gradient(negatives: str) -> None:
    scores, matches = example(4, 2)

    def value(s: Tensor) -> Tensor:
        torch.manual_seed(3)
        return TripletLoss(margin=0.5, negatives=negatives)(Scores(s), matches)  # type: ignore[arg-type, no-any-return]

    assert torch.autograd.gradcheck(value, scores.requires_grad_())


@pytest.mark.parametrize("negatives", ["all", "random", "hardest", "semi_hard"])
def test_captions_of_one_image_are_no_negatives(negatives: str) -> None:
    scores = torch.tensor([[0.9, -0.9]], requires_grad=True)
    value = TripletLoss(negatives=negatives)(Scores(scores), torch.tensor([[True, True]]))  # type: ignore[arg-type]
    value.backward()
    assert value.item() == 0
    assert scores.grad is not None
    assert scores.grad.abs().sum() == 0


def test_unknown_negatives_are_refused() -> None:
    with pytest.raises(ValueError, match="TripletLoss has all, random, hardest, semi_hard"):
        TripletLoss(negatives="hard")  # type: ignore[arg-type]
