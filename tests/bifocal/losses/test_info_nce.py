"""InfoNCELoss against a loop over its equation."""

import math
from typing import Any

import pytest
import torch

from bifocal.losses import InfoNCELoss
from bifocal.losses.info_nce import _costs
from bifocal.scores import Scores
from tests.bifocal.losses.pairs import cosines, negative_log_posteriors


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_one_caption_per_image_in_any_order_has_the_values_of_the_general_case(
    smoothing: float,
) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(7, 7, generator=generator, dtype=torch.float64)
    matches = torch.eye(7, dtype=torch.bool)[torch.randperm(7, generator=generator)]
    image, caption = matches.nonzero(as_tuple=True)
    costs = _costs(scores / 0.07, matches, image, caption, smoothing)
    costs = costs + _costs(scores.T / 0.07, matches.T, caption, image, smoothing)
    loss = InfoNCELoss(0.07, label_smoothing=smoothing)(Scores(scores), matches)
    torch.testing.assert_close(loss, costs.mean())


@pytest.mark.parametrize("captions_per_image", [1, 3])
@pytest.mark.parametrize("images", [2, 3, 17])
def test_info_nce_is_its_equation(images: int, captions_per_image: int) -> None:
    scores, matches = cosines(images, captions_per_image, images)
    loss = InfoNCELoss(temperature=0.1)(Scores(scores), matches)
    assert loss.item() == pytest.approx(
        negative_log_posteriors(scores.tolist(), matches.tolist(), 10)
    )
    assert torch.autograd.gradcheck(
        lambda s: InfoNCELoss(0.5)(Scores(s), matches), scores.requires_grad_()
    )


def smoothed(
    scores: list[list[float]], matches: list[list[bool]], temperature: float, epsilon: float
) -> float:
    """Cross-entropy with the target (1 - epsilon) on the match and epsilon spread over it and its
    negatives."""
    total, pairs = 0.0, 0
    images, captions = range(len(scores)), range(len(scores[0]))
    for n in images:
        for m in captions:
            if not matches[n][m]:
                continue
            pairs += 1
            rows = [(n, k) for k in captions if k == m or not matches[n][k]]
            columns = [(k, m) for k in images if k == n or not matches[k][m]]
            for candidates in (rows, columns):
                exponentials = [math.exp(scores[i][j] / temperature) for i, j in candidates]
                for pair, exponential in zip(candidates, exponentials, strict=True):
                    target = epsilon / len(candidates) + (1 - epsilon) * (pair == (n, m))
                    total -= target * math.log(exponential / sum(exponentials))
    return total / pairs


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
@pytest.mark.parametrize(("images", "captions_per_image"), [(1, 2), (2, 1), (5, 3)])
def test_label_smoothing_leaves_captions_that_share_an_image_out(
    images: int, captions_per_image: int, epsilon: float
) -> None:
    torch.manual_seed(images)
    scores = 2 * torch.rand(images, images * captions_per_image, dtype=torch.float64) - 1
    matches = torch.eye(images, dtype=torch.bool).repeat_interleave(captions_per_image, dim=1)
    loss = InfoNCELoss(temperature=0.2, label_smoothing=epsilon)
    assert loss(Scores(scores), matches).item() == pytest.approx(
        smoothed(scores.tolist(), matches.tolist(), 0.2, epsilon)
    )
    assert torch.autograd.gradcheck(lambda s: loss(Scores(s), matches), scores.requires_grad_())


def test_learned_temperature_has_the_gradient_of_the_equation() -> None:
    torch.manual_seed(0)
    scores = 2 * torch.rand(4, 4, dtype=torch.float64) - 1
    matches = torch.eye(4, dtype=torch.bool)
    loss = InfoNCELoss(temperature=0.3, learn_temperature=True).double()
    assert loss.learned_values() == {"temperature": pytest.approx(0.3)}
    loss(Scores(scores), matches).backward()
    step = 1e-6
    low, high = (
        negative_log_posteriors(
            scores.tolist(), matches.tolist(), math.exp(-math.log(0.3) + change)
        )
        for change in (-step, step)
    )
    assert loss.log_scale is not None
    assert loss.log_scale.grad is not None
    assert loss.log_scale.grad.item() == pytest.approx((high - low) / (2 * step), rel=1e-4)


def test_learned_scale_stays_at_most_100_and_can_come_back() -> None:
    scores, matches = torch.eye(3), torch.eye(3, dtype=torch.bool)
    loss = InfoNCELoss(temperature=0.02, learn_temperature=True)
    hard = -scores  # all matches are worse than their negatives: a lower scale is better
    assert loss.log_scale is not None
    with torch.no_grad():
        loss.log_scale.fill_(math.log(500))
    limited = loss(Scores(hard), matches)
    assert limited.item() == pytest.approx(
        InfoNCELoss(temperature=0.01)(Scores(hard), matches).item()
    )
    loss.zero_grad()
    limited.backward()
    assert loss.log_scale.grad is not None
    assert loss.log_scale.grad.item() > 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": 0.0},
        {"temperature": 0.005, "learn_temperature": True},
        {"label_smoothing": 1.0},
    ],
)
def test_arguments_out_of_range_are_explained(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        InfoNCELoss(**arguments)
    assert InfoNCELoss(temperature=0.005).temperature == 0.005
