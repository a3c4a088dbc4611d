"""MultiLevelEncoder against a loop over layers, cells and channels."""

import copy
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import interpolate

from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import MultiLevelEncoder
from bifocal.training.optimizers import apply_freezing


def mapped(level: nn.Sequential, cell: list[float], slope: float) -> list[float]:
    """1 x 1 convolutions, a LeakyReLU after each unless there is one, unit norm."""
    layers = [layer for layer in level if isinstance(layer, nn.Linear)]
    for layer in layers:
        rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        cell = [sum(w * x for w, x in zip(row, cell, strict=True)) + b for row, b in rows]
        if len(layers) > 1:
            cell = [value if value > 0 else slope * value for value in cell]
    norm = math.sqrt(sum(value * value for value in cell))
    return [value / norm for value in cell]


@pytest.mark.parametrize("convolutions", [3, 1])
def test_multi_level_encoder_applies_its_convolutions_per_level(convolutions: int) -> None:
    torch.manual_seed(0)
    encoder = MultiLevelEncoder(5, 4, levels=2, convolutions=convolutions).double()
    assert [sum(isinstance(layer, nn.Linear) for layer in level) for level in encoder.levels] == [
        convolutions
    ] * 2
    features, mask = (
        torch.randn(3, 2 * 9, 5, dtype=torch.float64),
        torch.ones(3, 18, dtype=torch.bool),
    )
    mask[2, 16:] = False
    embeddings = encoder(features, mask)
    assert embeddings.shape == (3, 2, 9, 4)
    for image in range(3):
        for level in range(2):
            for cell in range(9):
                feature = features[image, 9 * level + cell].tolist()
                expected = (
                    mapped(encoder.levels[level], feature, 0.25)
                    if mask[image, 9 * level + cell]
                    else [0.0] * 4
                )
                torch.testing.assert_close(embeddings[image, level, cell].tolist(), expected)


def test_multi_level_encoder_keeps_order_of_cells() -> None:
    encoder = MultiLevelEncoder(5, 4, levels=2).double()
    features, mask = (
        torch.randn(2, 2, 9, 5, dtype=torch.float64),
        torch.ones(2, 18, dtype=torch.bool),
    )
    order = torch.randperm(9)
    embeddings = encoder(features[:, :, order].flatten(1, 2), mask)
    torch.testing.assert_close(embeddings, encoder(features.flatten(1, 2), mask)[:, :, order])


def test_multi_level_encoder_rejects_number_of_cells_not_divisible_by_levels() -> None:
    with pytest.raises(ValueError, match="19 cells, not a multiple of 2 levels"):
        MultiLevelEncoder(5, 4, levels=2)(
            torch.zeros(1, 19, 5), torch.ones(1, 19, dtype=torch.bool)
        )


LAYERS = ["layer2", "layer4"]


@pytest.fixture(scope="module")
def pixel_encoder() -> MultiLevelEncoder:
    torch.manual_seed(0)
    network = {"channels": (4, 6, 8, 10), "stem_width": 4}
    return MultiLevelEncoder(
        3,
        4,
        levels=2,
        backbone="resnet10t",
        layers=LAYERS,
        cells=3,
        image_size=64,
        model_arguments=network,
    )


def test_backbone_inside_equals_interpolated_levels(pixel_encoder: MultiLevelEncoder) -> None:
    """The paper interpolates the maps of each layer, and applies all convolutions to the cells."""
    pixels, mask = 255 * torch.rand(2, 3, 64, 64), torch.ones(2, 64, 64, dtype=torch.bool)
    assert pixel_encoder.backbone is not None
    maps = pixel_encoder.backbone(pixels)
    assert [tuple(level.shape) for level in maps] == [(2, 6, 8, 8), (2, 10, 2, 2)]
    with torch.no_grad():
        vectors = pixel_encoder(pixels, mask)
        for number, level in enumerate(maps):
            cells = (
                interpolate(level, (3, 3), mode="bilinear", align_corners=False)
                .flatten(2)
                .transpose(1, 2)
            )
            for image in range(2):
                for cell in range(9):
                    expected = mapped(
                        pixel_encoder.levels[number], cells[image, cell].tolist(), 0.25
                    )
                    torch.testing.assert_close(vectors[image, number, cell], torch.tensor(expected))
    regions = pixel_encoder.region_vectors(RegionBatch(pixels, mask, torch.zeros(2, 0, 4)))
    torch.testing.assert_close(regions.vectors, vectors)
    assert regions.mask.shape == (2, 9)
    assert regions.boxes[1].tolist() == cell_boxes(3, 3).tolist()


def test_backbone_inside_never_trains(pixel_encoder: MultiLevelEncoder) -> None:
    model = nn.ModuleDict({"encoder": pixel_encoder})
    apply_freezing(model, {}, epoch=3)
    trained = {
        name.split(".")[1] for name, weight in model.named_parameters() if weight.requires_grad
    }
    assert trained == {"levels"}
    assert pixel_encoder.training
    assert not any(module.training for module in pixel_encoder.backbone.modules())
    statistics = {name: value.clone() for name, value in pixel_encoder.backbone.named_buffers()}
    pixel_encoder(
        255 * torch.rand(2, 3, 80, 64), torch.ones(2, 80, 64, dtype=torch.bool)
    ).sum().backward()
    assert all(
        value.equal(statistics[name]) for name, value in pixel_encoder.backbone.named_buffers()
    )
    assert all(weight.grad is None for weight in pixel_encoder.backbone.parameters())


def test_backbone_inside_loads_the_weights_of_the_features(
    pixel_encoder: MultiLevelEncoder, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="extract the features with ImageFiles or Pixels"):
        pixel_encoder.load_pretrained(tmp_path)
    weights = {
        name: value + 1 for name, value in pixel_encoder.backbone.network.state_dict().items()
    }
    save_file(weights, tmp_path / "weights.safetensors")
    copied = copy.deepcopy(pixel_encoder)
    copied.load_pretrained(tmp_path)
    loaded = copied.backbone.network.state_dict()
    assert all(value.equal(weights[name]) for name, value in loaded.items())


def test_layers_of_a_backbone_must_be_the_levels() -> None:
    with pytest.raises(ValueError, match="4 levels and 2 layers of resnet10t"):
        MultiLevelEncoder(3, 4, backbone="resnet10t", layers=LAYERS)
    with pytest.raises(ValueError, match="reads pixels, of 3 channels, and the features have 7"):
        MultiLevelEncoder(7, 4, levels=2, backbone="resnet10t", layers=LAYERS)
