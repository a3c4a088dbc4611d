"""Promises of every registered loss: ``loss(scores, matches) -> scalar``."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bifocal import registry
from bifocal.scores import Scores

LOSSES = registry.registered("bifocal.losses")
REFS: dict[str, Any] = {
    "WeightedSumLoss": {"name": "WeightedSumLoss", "losses": ["HardestTripletLoss", "InfoNCELoss"]}
}
"""References of the losses that cannot be built without arguments."""
GRADED = {"SpearmanLoss", "RegressionLoss"}
"""Losses whose matches are graded targets."""
FIELDS = ("cross", "visual", "textual", "word_scores", "sentence_scores")
IMAGES = 6


def new_loss(name: str) -> nn.Module:
    loss: nn.Module = registry.build("bifocal.losses", REFS.get(name, name))
    return loss


def new_scores(captions: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Scores:
    """Cosines of random embeddings, one caption per image or more."""
    generator = torch.Generator().manual_seed(seed)
    images = nn.functional.normalize(
        torch.randn(IMAGES, 5, generator=generator, dtype=torch.float64), dim=1
    )
    texts = nn.functional.normalize(
        torch.randn(captions, 5, generator=generator, dtype=torch.float64), dim=1
    )
    cross = images @ texts.T
    values = (cross, images @ images.T, texts @ texts.T, cross / 2, cross**2)
    named = dict(zip(FIELDS, values, strict=True))
    return Scores(**{name: value.to(dtype).requires_grad_() for name, value in named.items()})


def new_matches(name: str, captions: int) -> Tensor:
    if name in GRADED:
        return torch.randn(
            IMAGES, captions, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
    if name == "SemanticTripletLoss":
        return torch.randint(-1, 2, (IMAGES, captions), generator=torch.Generator().manual_seed(1))
    return torch.arange(IMAGES)[:, None] == torch.arange(captions) % IMAGES


def gradients(scores: Scores) -> list[Tensor]:
    return [value.grad for name in FIELDS if (value := getattr(scores, name)).grad is not None]


def permuted(scores: Scores, order: Tensor) -> Scores:
    fields = {name: getattr(scores, name).detach()[order][:, order] for name in FIELDS}
    return Scores(**fields)


@pytest.mark.parametrize("name", sorted(LOSSES))
class TestEveryLoss:
    def test_builds_with_the_defaults_of_its_paper(self, name: str) -> None:
        assert isinstance(new_loss(name), nn.Module)

    def test_is_a_finite_scalar_that_is_not_negative(self, name: str) -> None:
        loss = new_loss(name)(new_scores(IMAGES), new_matches(name, IMAGES))
        assert loss.shape == ()
        assert loss.isfinite()
        assert loss >= 0

    def test_is_finite_without_a_match_and_a_mean_over_matches_is_zero(self, name: str) -> None:
        scores = new_scores(IMAGES)
        loss = new_loss(name)(scores, torch.zeros_like(new_matches(name, IMAGES)))
        loss.backward()
        assert loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients(scores))
        if name not in GRADED | {"SigmoidLoss", "MultiLabelSoftMarginLoss"}:
            assert loss == 0
            assert not any(gradient.any() for gradient in gradients(scores))

    def test_gives_the_scores_a_finite_gradient(self, name: str) -> None:
        scores = new_scores(IMAGES)
        new_loss(name)(scores, new_matches(name, IMAGES)).backward()
        assert gradients(scores)
        assert all(gradient.isfinite().all() for gradient in gradients(scores))
        assert any(gradient.abs().sum() > 0 for gradient in gradients(scores))

    def test_computes_in_the_precision_of_the_scores(self, name: str) -> None:
        matches = new_matches(name, IMAGES)
        single = new_loss(name)(new_scores(IMAGES), matches)
        double = new_loss(name).double()(new_scores(IMAGES, torch.float64), matches)
        assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
        assert single.item() == pytest.approx(double.item(), rel=1e-4, abs=1e-5)

    def test_does_not_depend_on_the_order_of_the_batch(self, name: str) -> None:
        loss, matches = new_loss(name).double(), new_matches(name, IMAGES)
        scores = new_scores(IMAGES, torch.float64)
        order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(2))
        same = loss(permuted(scores, order), matches[order][:, order])
        torch.testing.assert_close(same, loss(scores, matches))

    def test_repeats_its_value_in_evaluation_mode(self, name: str) -> None:
        loss, scores, matches = new_loss(name).eval(), new_scores(IMAGES), new_matches(name, IMAGES)
        assert torch.equal(loss(scores, matches), loss(scores, matches))

    def test_rejects_matches_of_another_shape(self, name: str) -> None:
        with pytest.raises(ValueError, match="one row per image and one column per caption"):
            new_loss(name)(new_scores(IMAGES), new_matches(name, IMAGES)[:4])

    def test_keeps_its_state(self, name: str) -> None:
        loss, other = new_loss(name), new_loss(name)
        with torch.no_grad():
            for parameter in loss.parameters():
                parameter.add_(0.5)
        other.load_state_dict(loss.state_dict())
        scores, matches = new_scores(IMAGES), new_matches(name, IMAGES)
        torch.testing.assert_close(other(scores, matches), loss(scores, matches))


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"SemanticTripletLoss"}))
def test_takes_more_captions_than_images(name: str) -> None:
    scores = new_scores(3 * IMAGES)
    loss = new_loss(name)(scores, new_matches(name, 3 * IMAGES))
    loss.backward()
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(scores))
