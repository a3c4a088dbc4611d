"""HardestTripletLoss against a loop over its equation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bifocal.losses import HardestTripletLoss
from bifocal.scores import Scores


def eq_7(scores: list[list[float]], matches: list[list[bool]], margin: float) -> float:
    """Eq. (6)-(7) of BEAN, the mean over positive pairs (n, m); all other pairs of row or column
    are unrelated."""
    total, pairs = 0.0, 0
    for n, row in enumerate(scores):
        for m, positive in enumerate(row):
            if not matches[n][m]:
                continue
            pairs += 1
            captions = [row[k] for k in range(len(row)) if not matches[n][k]]
            images = [scores[k][m] for k in range(len(scores)) if not matches[k][m]]
            for negatives in (captions, images):
                total += max(
                    (max(0.0, margin - positive + negative) for negative in negatives), default=0.0
                )
    return total / pairs


def example(seed: int, images: int, captions_per_image: int) -> tuple[Tensor, Tensor]:
    """Cosines, also negative ones of positive pairs."""
    generator = torch.Generator().manual_seed(seed)
    scores = (
        2
        * torch.rand(images, images * captions_per_image, generator=generator, dtype=torch.float64)
        - 1
    )
    return scores, torch.eye(images, dtype=torch.bool).repeat_interleave(captions_per_image, dim=1)


@pytest.mark.parametrize("captions_per_image", [1, 2, 5])
@pytest.mark.parametrize("images", [1, 2, 3, 17])
def test_hardest_triplet_is_eq_7(images: int, captions_per_image: int) -> None:
    scores, matches = example(images, images, captions_per_image)
    loss = HardestTripletLoss(margin=0.2)(Scores(scores), matches)
    assert loss.item() == pytest.approx(eq_7(scores.tolist(), matches.tolist(), 0.2))


def test_hardest_triplet_gradient() -> None:
    scores, matches = example(1, 4, 2)
    assert torch.autograd.gradcheck(
        lambda s: HardestTripletLoss(margin=0.5)(Scores(s), matches), scores.requires_grad_()
    )


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 12), shift=st.floats(-5, 5))
def test_hardest_triplet_is_invariant_to_shift_transposition_and_order(
    seed: int, size: int, shift: float
) -> None:
    scores, matches = example(seed, size, 1)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    loss = HardestTripletLoss()
    expected = loss(Scores(scores), matches)
    for same in (scores + shift, scores.T, scores[order][:, order]):
        torch.testing.assert_close(loss(Scores(same), matches), expected)


def test_hardest_triplet_has_no_negatives_among_captions_of_one_image() -> None:
    scores = torch.tensor([[0.9, -0.9]], requires_grad=True)
    loss = HardestTripletLoss(margin=0.2)(Scores(scores), torch.tensor([[True, True]]))
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert scores.grad.abs().sum() == 0
