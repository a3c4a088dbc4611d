"""HardestTripletLoss against a loop over its equation."""

import pytest
import torch

from bifocal.losses import HardestTripletLoss
from bifocal.scores import Scores
from tests.bifocal.losses.pairs import cosines, negatives_of


def eq_7(scores: list[list[float]], matches: list[list[bool]], margin: float) -> float:
    """Eq. (6)-(7) of BEAN, the mean over positive pairs (n, m); all other pairs of row or column
    are unrelated."""
    positives = negatives_of(scores, matches)
    costs = [
        max((max(0.0, margin - positive + negative) for negative in negatives), default=0.0)
        for positive, *groups in positives
        for negatives in groups
    ]
    return sum(costs) / len(positives)


@pytest.mark.parametrize("captions_per_image", [1, 2, 5])
@pytest.mark.parametrize("images", [1, 2, 3, 17])
def test_hardest_triplet_is_eq_7(images: int, captions_per_image: int) -> None:
    scores, matches = cosines(images, captions_per_image, images)
    loss = HardestTripletLoss(margin=0.2)(Scores(scores), matches)
    assert loss.item() == pytest.approx(eq_7(scores.tolist(), matches.tolist(), 0.2))


def test_hardest_triplet_gradient() -> None:
    scores, matches = cosines(4, 2, 1)
    assert torch.autograd.gradcheck(
        lambda s: HardestTripletLoss(margin=0.5)(Scores(s), matches), scores.requires_grad_()
    )
