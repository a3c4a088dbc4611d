"""Grid features against a resize with Pillow and direct calls of the modules."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from bifocal.backbones.timm.backbone import token_map
from bifocal.features.boxes import cell_boxes, coordinates
from bifocal.features.extractors import Grid

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}


def random_image(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def network_input(
    image: Image.Image, size: tuple[int, int], mean: list[float], std: list[float]
) -> Tensor:
    array = np.asarray(image.resize(size, Image.Resampling.BICUBIC), dtype=np.float64) / 255
    channels = [(array[:, :, c] - mean[c]) / std[c] for c in range(3)]
    return torch.from_numpy(np.stack(channels)).float().unsqueeze(0)


@pytest.mark.parametrize("stage", [None, 2, 3])
def test_grid_cells_equal_the_output_of_the_module(stage: int | None) -> None:
    torch.manual_seed(0)
    grid = Grid("resnet10t", stage=stage, size=64, model_arguments=SMALL)
    images = [random_image(80, 50), random_image(64, 64, seed=1)]
    extracted = grid.extract([grid.preprocess(image) for image in images])
    config = grid.backbone.network.pretrained_cfg
    for image, regions in zip(images, extracted, strict=True):
        inputs = network_input(image, (64, 64), config["mean"], config["std"])
        maps = {
            None: lambda x: grid.backbone.network.forward_features(x),
            2: lambda x: grid.backbone.network.layer2(
                grid.backbone.network.layer1(grid.backbone.network.maxpool(_stem(grid, x)))
            ),
            3: lambda x: grid.backbone.network.layer3(
                grid.backbone.network.layer2(
                    grid.backbone.network.layer1(grid.backbone.network.maxpool(_stem(grid, x)))
                )
            ),
        }
        (expected,) = maps[stage](inputs)
        assert (grid.regions, grid.dim) == (
            expected.shape[1] * expected.shape[2],
            expected.shape[0],
        )
        for row in range(expected.shape[1]):
            for column in range(expected.shape[2]):
                cell = regions.features[row * expected.shape[2] + column]
                torch.testing.assert_close(cell, expected[:, row, column], rtol=1e-4, atol=1e-5)


def _stem(grid: Grid, inputs: Tensor) -> Tensor:
    network = grid.backbone.network
    return network.act1(network.bn1(network.conv1(inputs)))


def test_grid_with_resize_aspect_keeps_the_aspect_ratio_without_padding() -> None:
    grid = Grid(
        "resnet10t",
        stage=3,
        size=64,
        resize="aspect",
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        model_arguments=SMALL,
    )
    wide, tall, square = (
        random_image(128, 64),
        random_image(60, 120, seed=1),
        random_image(30, 30, seed=2),
    )
    extracted = grid.extract([grid.preprocess(image) for image in (wide, tall, square)])
    for image, regions, size in zip(
        (wide, tall, square), extracted, ((64, 32), (32, 64), (64, 64)), strict=True
    ):
        inputs = network_input(image, size, [0.5] * 3, [0.5] * 3)
        expected = grid.backbone.network.forward_intermediates(
            inputs, indices=[3], intermediates_only=True
        )[0][0]
        assert expected.shape[1:] == (size[1] // 16, size[0] // 16)
        torch.testing.assert_close(regions.features, expected.flatten(1).T, rtol=1e-4, atol=1e-5)
        assert len(regions.features) <= grid.regions == 16


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (7, 7)])
def test_cell_boxes_tile_the_image(rows: int, columns: int) -> None:
    boxes = cell_boxes(rows, columns)
    for row in range(rows):
        for column in range(columns):
            expected = [column / columns, row / rows, (column + 1) / columns, (row + 1) / rows]
            assert boxes[row * columns + column].tolist() == pytest.approx(expected)
    assert (boxes[:, 2:] - boxes[:, :2]).prod(1).sum().item() == pytest.approx(1)


def test_grid_appends_scaled_coordinates() -> None:
    torch.manual_seed(0)
    located = Grid(
        "resnet10t", stage=3, size=64, coordinates=True, coordinate_scale=4.0, model_arguments=SMALL
    )
    plain_grid = Grid("resnet10t", stage=3, size=64, model_arguments=SMALL)
    plain_grid.backbone.network.load_state_dict(located.backbone.network.state_dict())
    image = random_image(64, 64)
    (with_geometry,), (plain,) = (
        located.extract([located.preprocess(image)]),
        plain_grid.extract([plain_grid.preprocess(image)]),
    )
    assert located.dim == plain_grid.dim + 7
    torch.testing.assert_close(with_geometry.features[:, :-7], plain.features)
    for cell, geometry in zip(
        cell_boxes(4, 4).tolist(), with_geometry.features[:, -7:].tolist(), strict=True
    ):
        x0, y0, x1, y1 = cell
        expected = [x0, y0, x1, y1, x1 - x0, y1 - y0, (x1 - x0) * (y1 - y0)]
        assert geometry == pytest.approx([4 * number for number in expected])
    assert coordinates(torch.tensor([[0.0, 0.0, 1.0, 1.0]])).tolist() == [[0, 0, 1, 1, 1, 1, 1]]


def test_grid_transposes_channels_last_maps() -> None:
    arguments = {
        "img_size": 64,
        "embed_dim": 16,
        "depths": (1, 1),
        "num_heads": (2, 2),
        "window_size": 4,
    }
    grid = Grid("swin_tiny_patch4_window7_224", size=64, model_arguments=arguments)
    assert (grid.dim, grid.regions) == (32, 64)


def test_grid_with_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="timm has no backbone 'resnet10x'"):
        Grid("resnet10x")
    with pytest.raises(ValueError, match="resnet10t has no stage 7: it has 5, counted from 0"):
        Grid("resnet10t", stage=7)
    with pytest.raises(
        ValueError, match=r"takes images of 224 x 224 pixels, not 64: set model_arguments"
    ):
        Grid("vit_tiny_patch16_224", size=64, model_arguments={"depth": 1})
    with pytest.raises(ValueError, match="gives 196 tokens for 448 x 112 pixels"):
        token_map(nn.Identity(), torch.zeros(1, 196, 4), 448, 112)
