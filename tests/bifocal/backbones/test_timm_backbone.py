"""Features of vision transformers and of cropped images, against timm's own calls and
transforms."""

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform, resolve_model_data_config

from bifocal.features.extractors import Grid

REGISTERS = {"img_size": 28, "embed_dim": 16, "depth": 2, "num_heads": 2}
SIZES = ((64, 64), (97, 48), (41, 70), (200, 61))
"""Width and height."""


def images() -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in SIZES]


@pytest.mark.parametrize("size", [None, 48])
def test_crop_is_that_of_timm(size: int | None) -> None:
    arguments = (
        {"model_arguments": {"img_size": size}, "size": size, "resize": "crop"} if size else {}
    )
    extractor = Grid("test_vit", **arguments)
    config = resolve_model_data_config(extractor.backbone.network)
    transform = create_transform(**(config | {"input_size": (3, size, size)} if size else config))
    network = extractor.backbone.network
    for image in images():
        (regions,) = extractor.extract([extractor.preprocess(image)])
        tokens = network.forward_features(transform(image).unsqueeze(0))[0]
        expected = tokens[network.num_prefix_tokens :]
        torch.testing.assert_close(regions.features, expected, rtol=1e-4, atol=1e-4)
        width, height = image.size
        crop = 0.95 * min(width, height)
        sides = [(width - crop) / 2, (height - crop) / 2, (width + crop) / 2, (height + crop) / 2]
        box = np.array(sides) / [width, height, width, height]
        assert regions.boxes is not None
        found = torch.cat([regions.boxes.amin(dim=0)[:2], regions.boxes.amax(dim=0)[2:]])
        np.testing.assert_allclose(found, box, atol=0.02)


def test_size_alone_keeps_the_whole_image() -> None:
    arguments = {"size": 48, "model_arguments": {"img_size": 48}}
    extractor = Grid("test_vit", **arguments)
    assert extractor.describe()["preprocessing"]["resize"] == "square"
    (regions,) = extractor.extract([extractor.preprocess(images()[1])])
    assert regions.boxes is not None
    assert regions.boxes.amin(dim=0)[:2].tolist() == [0, 0]
    assert regions.boxes.amax(dim=0)[2:].tolist() == [1, 1]


def test_boxes_of_cells_tile_the_crop() -> None:
    extractor = Grid("test_vit", size=48, resize="crop", model_arguments={"img_size": 48})
    (regions,) = extractor.extract([extractor.preprocess(Image.new("RGB", (200, 100)))])
    assert regions.boxes is not None
    x0, y0, x1, y1 = regions.boxes.T
    assert x0.min().item() == pytest.approx(0.26, abs=0.01)
    assert x1.max().item() == pytest.approx(0.74, abs=0.01)
    assert (y0.min().item(), y1.max().item()) == pytest.approx((0.02, 0.98), abs=0.01)
    assert ((x1 - x0) * (y1 - y0)).sum().item() == pytest.approx(0.48 * 0.96, abs=0.01)


@pytest.mark.parametrize(
    ("name", "prefix", "norm"),
    [
        ("vit_small_patch14_reg4_dinov2", 5, "norm"),
        ("test_vit2", 1, "fc_norm"),
        ("vit_base_patch16_siglip_224", 0, "norm"),
    ],
)
def test_cells_are_the_normalized_tokens_of_the_patches(name: str, prefix: int, norm: str) -> None:
    torch.manual_seed(0)
    size = 28 if prefix == 5 else 32
    grid = Grid(name, size=size, model_arguments=REGISTERS | {"img_size": size})
    network = grid.backbone.network
    for parameter in getattr(network, norm).parameters():
        parameter.data.uniform_(0.5, 2)
    image = images()[0]
    inputs = grid.backbone.normalize(grid.preprocess(image).unsqueeze(0))
    blocks = network.norm_pre(network.patch_drop(network._pos_embed(network.patch_embed(inputs))))
    for block in network.blocks:
        blocks = block(blocks)
    expected = getattr(network, norm)(blocks)[0, prefix:]
    (regions,) = grid.extract([grid.preprocess(image)])
    assert (grid.regions, grid.dim) == (4, 16)
    torch.testing.assert_close(regions.features, expected, rtol=1e-4, atol=1e-4)
    by_stage = Grid(name, stage=1, size=size, model_arguments=REGISTERS | {"img_size": size})
    by_stage.backbone.network.load_state_dict(network.state_dict())
    (regions,) = by_stage.extract([grid.preprocess(image)])
    torch.testing.assert_close(regions.features, expected, rtol=1e-4, atol=1e-4)


def test_impossible_data_configurations_are_errors() -> None:
    with pytest.raises(
        ValueError, match=r"tf_efficientnetv2_b3 by 'squash' with crop_pct 0.9: set resize"
    ):
        Grid("tf_efficientnetv2_b3")
