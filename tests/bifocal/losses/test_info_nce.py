"""InfoNCELoss against a loop over its equation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.losses import InfoNCELoss
from bifocal.scores import Scores


def equation(scores: list[list[float]], matches: list[list[bool]], temperature: float) -> float:
    """-log(f(match) / (f(match) + sum of f(negative))), over the captions, then over the images."""
    f = [[math.exp(score / temperature) for score in row] for row in scores]
    total, pairs = 0.0, 0
    for n, row in enumerate(f):
        for m, match in enumerate(row):
            if matches[n][m]:
                pairs += 1
                captions = sum(row[k] for k in range(len(row)) if not matches[n][k])
                images = sum(f[k][m] for k in range(len(f)) if not matches[k][m])
                total -= math.log(match / (match + captions)) + math.log(match / (match + images))
    return total / pairs


@pytest.mark.parametrize("captions_per_image", [1, 3])
@pytest.mark.parametrize("images", [2, 3, 17])
def test_info_nce_is_its_equation(images: int, captions_per_image: int) -> None:
    torch.manual_seed(images)
    scores = 2 * torch.rand(images, images * captions_per_image, dtype=torch.float64) - 1
    matches = torch.eye(images, dtype=torch.bool).repeat_interleave(captions_per_image, dim=1)
    loss = InfoNCELoss(temperature=0.1)(Scores(scores), matches)
    assert loss.item() == pytest.approx(equation(scores.tolist(), matches.tolist(), 0.1))
    assert torch.autograd.gradcheck(lambda s: InfoNCELoss(0.5)(Scores(s), matches), scores.requires_grad_())


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 12), shift=st.floats(-5, 5))
def test_info_nce_is_invariant_to_shift_transposition_and_order(seed: int, size: int, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, size, generator=generator, dtype=torch.float64)
    order = torch.randperm(size, generator=generator)
    matches, loss = torch.eye(size, dtype=torch.bool), InfoNCELoss()
    for same in (scores + shift, scores.T, scores[order][:, order]):
        torch.testing.assert_close(loss(Scores(same), matches), loss(Scores(scores), matches))


def test_info_nce_without_negatives_has_no_gradient() -> None:
    scores = torch.tensor([[0.9, -0.9]], requires_grad=True)
    loss = InfoNCELoss()(Scores(scores), torch.tensor([[True, True]]))
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert scores.grad.abs().sum() == 0
