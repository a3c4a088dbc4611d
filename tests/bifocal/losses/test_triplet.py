"""The triplet losses against loops over their equations, and what must hold for all scores."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bifocal.losses import HardestTripletLoss, TripletLoss
from bifocal.scores import Scores

LOSSES = (HardestTripletLoss, TripletLoss)


def hinge(positive: float, negative: float, margin: float) -> float:
    return max(0.0, margin - positive + negative)


def equation(scores: list[list[float]], matches: list[list[bool]], margin: float, hardest: bool) -> float:
    """Eq. (5)-(7) of BEAN over positive pairs (n, m); unrelated captions and images are all that do not match."""
    total, pairs = 0.0, 0
    choose = max if hardest else sum
    for n, row in enumerate(scores):
        for m, positive in enumerate(row):
            if not matches[n][m]:
                continue
            pairs += 1
            captions = [hinge(positive, row[k], margin) for k in range(len(row)) if not matches[n][k]]
            images = [hinge(positive, scores[k][m], margin) for k in range(len(scores)) if not matches[k][m]]
            total += (choose(captions) if captions else 0.0) + (choose(images) if images else 0.0)
    return total / pairs


def example(seed: int, images: int, captions_each: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.rand(images, images * captions_each, generator=generator, dtype=torch.float64) - 1
    return scores, torch.eye(images, dtype=torch.bool).repeat_interleave(captions_each, dim=1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("captions_each", [1, 2, 5])
@pytest.mark.parametrize("images", [1, 2, 3, 17])
def test_loss_is_its_equation(loss: type, images: int, captions_each: int) -> None:
    scores, matches = example(images, images, captions_each)  # positives below 0 too
    found = loss(margin=0.2)(Scores(scores), matches)
    expected = equation(scores.tolist(), matches.tolist(), 0.2, loss is HardestTripletLoss)
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient(loss: type) -> None:
    scores, matches = example(1, 4, 2)
    assert torch.autograd.gradcheck(lambda s: loss(margin=0.5)(Scores(s), matches), scores.requires_grad_())


@pytest.mark.parametrize("loss", LOSSES)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 12), shift=st.floats(-5, 5))
def test_loss_sees_differences_and_no_order(loss: type, seed: int, size: int, shift: float) -> None:
    scores, matches = example(seed, size, 1)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    expected = loss()(Scores(scores), matches)
    for same in (scores + shift, scores.T, scores[order][:, order]):
        torch.testing.assert_close(loss()(Scores(same), matches), expected)


@pytest.mark.parametrize("loss", LOSSES)
def test_captions_of_one_image_are_no_negatives(loss: type) -> None:
    matches = torch.tensor([[True, True]])
    scores = torch.tensor([[0.9, -0.9]], requires_grad=True)
    value = loss(margin=0.2)(Scores(scores), matches)
    value.backward()
    assert value.item() == 0
    assert scores.grad is not None
    assert scores.grad.abs().sum() == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_shapes_that_differ_are_refused(loss: type) -> None:
    with pytest.raises(ValueError, match=r"scores \(2, 3\) and matches \(3, 2\) differ"):
        loss()(Scores(torch.zeros(2, 3)), torch.zeros(3, 2, dtype=torch.bool))
