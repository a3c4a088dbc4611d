"""Promises of every registered ranking head: features (B, R, D) and mask (B, R) -> scores (B,
labels)."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bifocal import registry
from bifocal.ranking_heads.model import RankingModel, load_head, save_head

HEADS = registry.registered("bifocal.ranking_heads")
DIM, LABELS = 4, 2


def new_head(name: str) -> nn.Module:
    torch.manual_seed(0)
    head: nn.Module = registry.build("bifocal.ranking_heads", name, input_dim=DIM, labels=LABELS)
    return head.eval()


def new_regions(images: int = 3, regions: int = 5, dim: int = DIM) -> tuple[Tensor, Tensor]:
    """Random regions; image i has i regions fewer than the first."""
    features = torch.randn(images, regions, dim, generator=torch.Generator().manual_seed(0))
    return features, torch.arange(regions) < regions - torch.arange(images).unsqueeze(1)


@pytest.mark.parametrize("name", sorted(HEADS))
class TestEveryRankingHead:
    def test_builds_with_the_defaults_of_its_paper(self, name: str) -> None:
        features, mask = new_regions(dim=2048)
        assert registry.build("bifocal.ranking_heads", name)(features, mask).isfinite().all()

    def test_gives_one_float32_score_per_label(self, name: str) -> None:
        scores = registry.build("bifocal.ranking_heads", name, input_dim=DIM, labels=7)(
            *new_regions()
        )
        assert scores.shape == (3, 7)
        assert scores.dtype == torch.float32

    def test_ignores_masked_regions_and_uses_all_others(self, name: str) -> None:
        features, mask = new_regions()
        head = new_head(name)
        noise = torch.where(mask.unsqueeze(2), features, 99.0)
        torch.testing.assert_close(head(noise, mask), head(features, mask))
        head(features.requires_grad_(), mask).sum().backward()
        assert features.grad is not None
        assert (features.grad[~mask] == 0).all()
        assert (features.grad.abs().sum(dim=(1, 2)) > 0).all()

    def test_is_invariant_to_padding(self, name: str) -> None:
        features, mask = new_regions()
        padded = (
            torch.cat([features, torch.zeros(3, 2, DIM)], dim=1),
            torch.cat([mask, mask[:, :2] & False], dim=1),
        )
        torch.testing.assert_close(new_head(name)(*padded), new_head(name)(features, mask))

    def test_is_invariant_to_the_order_of_regions(self, name: str) -> None:
        features, mask = new_regions()
        order = torch.tensor([3, 0, 4, 2, 1])
        torch.testing.assert_close(
            new_head(name)(features[:, order], mask[:, order]), new_head(name)(features, mask)
        )

    def test_scores_images_independently(self, name: str) -> None:
        features, mask = new_regions()
        order = torch.tensor([2, 0, 1])
        torch.testing.assert_close(
            new_head(name)(features[order], mask[order]), new_head(name)(features, mask)[order]
        )

    def test_gives_all_parameters_a_gradient(self, name: str) -> None:
        head = new_head(name)
        head(*new_regions()).square().sum().backward()
        for parameter in head.parameters():
            assert parameter.grad is not None
            assert parameter.grad.abs().sum() > 0

    def test_is_saved_and_loaded_with_the_same_scores(self, name: str, tmp_path: Path) -> None:
        head = RankingModel(new_head(name)).eval()
        save_head(tmp_path, head, name, None, input_dim=DIM, task="animals", labels=["cat", "dog"])
        loaded, labels = load_head(tmp_path)
        assert labels == ["cat", "dog"]
        assert not loaded.training
        assert torch.equal(loaded(*new_regions()), head(*new_regions()))
