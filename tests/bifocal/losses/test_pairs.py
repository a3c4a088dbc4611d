"""Properties of the losses of matching pairs."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bifocal.losses import HardestTripletLoss, InfoNCELoss, TripletLoss
from bifocal.scores import Scores
from tests.bifocal.losses.pairs import cosines

NEGATIVES = ("all", "random", "hardest", "semi_hard")
Build = Callable[[], nn.Module]


@pytest.mark.parametrize("build", [HardestTripletLoss, TripletLoss, InfoNCELoss])
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 12), shift=st.floats(-5, 5))
def test_loss_is_invariant_to_shift_transposition_and_order(
    build: Build, seed: int, size: int, shift: float
) -> None:
    scores, matches = cosines(size, 1, seed)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    loss = build()
    expected = loss(Scores(scores), matches)
    for same in (scores + shift, scores.T, scores[order][:, order]):
        torch.testing.assert_close(loss(Scores(same), matches), expected)


@pytest.mark.parametrize(
    "build",
    [
        HardestTripletLoss,
        InfoNCELoss,
        *(partial(TripletLoss, negatives=negatives) for negatives in NEGATIVES),
    ],
)
def test_captions_of_one_image_are_no_negatives(build: Build) -> None:
    scores = torch.tensor([[0.9, -0.9]], requires_grad=True)
    loss = build()(Scores(scores), torch.tensor([[True, True]]))
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert scores.grad.abs().sum() == 0
