"""Hypercolumns against direct calls of the modules and loops over cells."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from bifocal.features.boxes import cell_boxes
from bifocal.features.extractors import Hypercolumns

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}
LAYERS = ("layer2", "layer3", "layer4")


def levels(extractor: Hypercolumns, pixels: Tensor) -> list[Tensor]:
    network = extractor.backbone.network
    inputs = extractor.backbone.normalize(pixels.unsqueeze(0))
    low = network.layer2(
        network.layer1(network.maxpool(network.act1(network.bn1(network.conv1(inputs)))))
    )
    middle = network.layer3(low)
    return [low[0], middle[0], network.layer4(middle)[0]]


def hypercolumn(
    maps: list[Tensor], row: int, column: int, lower_norm: float, power: float
) -> Tensor:
    *lower, last = maps
    parts = []
    for level in lower:
        step = level.shape[1] // last.shape[1]
        mean = level[:, row * step : (row + 1) * step, column * step : (column + 1) * step].mean(
            dim=(1, 2)
        )
        parts.append(lower_norm * mean / mean.norm())
    top = last[:, row, column].sign() * last[:, row, column].abs() ** power
    return torch.cat([*parts, top / top.norm()])


@pytest.fixture
def image() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8))


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_hypercolumns_concatenate_all_layers_at_the_cell(image: Image.Image, power: float) -> None:
    torch.manual_seed(0)
    extractor = Hypercolumns(
        "resnet10t", LAYERS, lower_norm=0.3, power=power, size=96, model_arguments=SMALL
    )
    pixels = extractor.preprocess(image)
    ((features, boxes, *_),) = extractor.extract([pixels])
    assert (extractor.regions, extractor.dim) == features.shape == (9, 16 + 24 + 32)
    assert extractor.describe()["channels"] == [16, 24, 32]
    maps = levels(extractor, pixels)
    for row in range(3):
        for column in range(3):
            expected = hypercolumn(maps, row, column, 0.3, power)
            torch.testing.assert_close(features[3 * row + column], expected, rtol=1e-4, atol=1e-5)
    assert boxes is not None
    assert boxes.tolist() == cell_boxes(3, 3).tolist()


def test_hypercolumns_with_mirror_are_equivariant_to_mirroring(image: Image.Image) -> None:
    torch.manual_seed(0)
    extractor = Hypercolumns("resnet10t", LAYERS, size=96, model_arguments=SMALL)
    pixels = extractor.preprocess(image)
    plain, mirrored = (
        cells.features.view(3, 3, -1) for cells in extractor.extract([pixels, pixels.flip(2)])
    )
    extractor.mirror = True
    both = [cells.features.view(3, 3, -1) for cells in extractor.extract([pixels, pixels.flip(2)])]
    torch.testing.assert_close(both[0], (plain + mirrored.flip(1)) / 2)
    torch.testing.assert_close(both[0], both[1].flip(1))
    assert not torch.allclose(plain, mirrored.flip(1))


def test_hypercolumns_append_class_probabilities_of_each_cell(image: Image.Image) -> None:
    torch.manual_seed(0)
    extractor = Hypercolumns(
        "resnet10t", LAYERS, 0.3, classes=True, size=96, model_arguments=SMALL | {"num_classes": 7}
    )
    pixels = extractor.preprocess(image)
    ((features, *_),) = extractor.extract([pixels])
    assert (extractor.regions, extractor.dim) == features.shape == (9, 16 + 24 + 7 + 32)
    last = levels(extractor, pixels)[-1]
    for row in range(3):
        for column in range(3):
            cell = last[:, row : row + 1, column : column + 1]
            probabilities = extractor.backbone.network.forward_head(cell.unsqueeze(0)).softmax(
                dim=1
            )[0]
            appended = features[3 * row + column, 40:47]
            torch.testing.assert_close(appended, 0.3 * probabilities.sqrt(), rtol=1e-4, atol=1e-6)
            assert appended.norm() == pytest.approx(0.3, abs=1e-5)


def test_hypercolumns_with_classes_need_the_classifier_of_the_last_map() -> None:
    with pytest.raises(
        ValueError, match="expected a linear layer on the 24 channels of the last map"
    ):
        _ = Hypercolumns(
            "resnet10t", ("layer2", "layer3"), classes=True, size=96, model_arguments=SMALL
        ).dim


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": ("layer5",)}, "no layer 'layer5'"),
        ({"layers": ()}, "layers is 0: expected 1 or more"),
        ({"power": 0.0}, r"power is 0.0: expected a number in \(0, 1\]"),
        ({"lower_norm": -1.0}, "lower_norm is -1.0: expected 0 or more"),
    ],
)
def test_hypercolumns_with_invalid_arguments_are_an_error(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hypercolumns(
            **{"backbone": "resnet10t", "layers": LAYERS, "model_arguments": SMALL} | arguments
        )
