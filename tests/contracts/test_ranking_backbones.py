"""Promises of every registered backbone of ranking heads: inputs and mask -> features (B, R, D) and
mask (B, R)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bifocal import registry
from bifocal.ranking_heads.backbones.base import RankingBackbone
from bifocal.ranking_heads.model import build_ranking_model, load_head, save_head

SMALL: dict[str, Any] = {
    "backbone": "resnet10t",
    "model_arguments": {"channels": [4, 4, 4, 8], "stem_width": 4},
}
BEAN = {"name": "BEANEncoder", "dim": 5, "maps": 6, "image_size": 64, "crop": None, **SMALL}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "CellBackbone": {"image_size": 64, **SMALL},
    "EncoderBackbone": {"encoder": BEAN},
}


def new_backbone(name: str) -> RankingBackbone:
    torch.manual_seed(0)
    ref = {"name": name, **ARGUMENTS[name]}
    backbone: RankingBackbone = registry.build("bifocal.ranking_heads.backbones", ref, input_dim=3)
    return backbone.eval()


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    return 255 * torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", sorted(registry.registered("bifocal.ranking_heads.backbones")))
class TestEveryRankingBackbone:
    def test_gives_float32_regions_of_its_dimension(self, name: str, pixels: Tensor) -> None:
        backbone = new_backbone(name)
        features, mask = backbone(pixels, torch.ones(3, 64, 64, dtype=torch.bool))
        assert features.shape == (*mask.shape, backbone.dim)
        assert (features.dtype, mask.dtype) == (torch.float32, torch.bool)

    def test_embeds_a_square_image_of_its_size_like_forward(
        self, name: str, pixels: Tensor
    ) -> None:
        backbone = new_backbone(name)
        features, _ = backbone(pixels, torch.ones(3, 64, 64, dtype=torch.bool))
        torch.testing.assert_close(backbone.embed_pixels(pixels), features)

    def test_ignores_the_padding_of_an_image(self, name: str, pixels: Tensor) -> None:
        backbone = new_backbone(name)
        mask = torch.zeros(3, 64, 64, dtype=torch.bool)
        mask[:, :48, :40] = True
        noise = torch.where(mask.unsqueeze(1), pixels, 7.0)
        torch.testing.assert_close(
            backbone(noise, mask)[0], backbone(pixels[:, :, :48, :40], mask[:, :48, :40])[0]
        )

    def test_is_saved_below_a_head_and_loaded_with_the_same_scores(
        self, name: str, pixels: Tensor, tmp_path: Path
    ) -> None:
        ref = {"name": name, **ARGUMENTS[name]}
        model = build_ranking_model("MLPHead", ref, input_dim=3, labels=2).eval()
        save_head(
            tmp_path, model, "MLPHead", ref, input_dim=3, task="animals", labels=["cat", "dog"]
        )
        loaded, labels = load_head(tmp_path)
        assert labels == ["cat", "dog"]
        assert loaded.reads_pixels
        mask = torch.ones(3, 64, 64, dtype=torch.bool)
        assert torch.equal(loaded(pixels, mask), model(pixels, mask))
        torch.testing.assert_close(loaded.score_pixels(pixels), model(pixels, mask))
