"""Hypercolumns against the modules called in turn, and loops over cells."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from bifocal.features.boxes import cell_boxes
from bifocal.features.extractors import Hypercolumns

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}
LAYERS = ("layer2", "layer3", "layer4")


def levels(kind: Hypercolumns, pixels: Tensor) -> list[Tensor]:
    network = kind.backbone.network
    inputs = kind.backbone.normalized(pixels.unsqueeze(0))
    low = network.layer2(network.layer1(network.maxpool(network.act1(network.bn1(network.conv1(inputs))))))
    middle = network.layer3(low)
    return [low[0], middle[0], network.layer4(middle)[0]]


def column(maps: list[Tensor], row: int, place: int, lower_norm: float, power: float) -> Tensor:
    *lower, last = maps
    parts = []
    for level in lower:
        step = level.shape[1] // last.shape[1]
        mean = level[:, row * step : (row + 1) * step, place * step : (place + 1) * step].mean(dim=(1, 2))
        parts.append(lower_norm * mean / mean.norm())
    top = last[:, row, place].sign() * last[:, row, place].abs() ** power
    return torch.cat([*parts, top / top.norm()])


@pytest.fixture
def image() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8))


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_a_cell_has_every_layer_at_its_place(image: Image.Image, power: float) -> None:
    torch.manual_seed(0)
    kind = Hypercolumns("resnet10t", LAYERS, lower_norm=0.3, power=power, size=96, model_arguments=SMALL)
    pixels = kind.preprocess(image)
    ((features, boxes, _),) = kind.extract([pixels])
    assert (kind.regions, kind.dim) == features.shape == (9, 16 + 24 + 32)
    assert kind.describe()["channels"] == [16, 24, 32]
    maps = levels(kind, pixels)
    for row in range(3):
        for place in range(3):
            expected = column(maps, row, place, 0.3, power)
            torch.testing.assert_close(features[3 * row + place], expected, rtol=1e-4, atol=1e-5)
    assert boxes is not None
    assert boxes.tolist() == cell_boxes(3, 3).tolist()


def test_a_mirrored_image_has_the_same_cells_mirrored(image: Image.Image) -> None:
    torch.manual_seed(0)
    kind = Hypercolumns("resnet10t", LAYERS, size=96, model_arguments=SMALL)
    pixels = kind.preprocess(image)
    here, there = (cells.features.view(3, 3, -1) for cells in kind.extract([pixels, pixels.flip(2)]))
    kind.mirror = True
    both = [cells.features.view(3, 3, -1) for cells in kind.extract([pixels, pixels.flip(2)])]
    torch.testing.assert_close(both[0], (here + there.flip(1)) / 2)
    torch.testing.assert_close(both[0], both[1].flip(1))
    assert not torch.allclose(here, there.flip(1))


def test_a_cell_has_the_classes_it_would_have_as_an_image(image: Image.Image) -> None:
    torch.manual_seed(0)
    kind = Hypercolumns("resnet10t", LAYERS, 0.3, classes=True, size=96, model_arguments=SMALL | {"num_classes": 7})
    pixels = kind.preprocess(image)
    ((features, _, _),) = kind.extract([pixels])
    assert (kind.regions, kind.dim) == features.shape == (9, 16 + 24 + 7 + 32)
    last = levels(kind, pixels)[-1]
    for row in range(3):
        for place in range(3):
            alone = last[:, row : row + 1, place : place + 1]
            said = kind.backbone.network.forward_head(alone.unsqueeze(0)).softmax(dim=1)[0]
            found = features[3 * row + place, 40:47]
            torch.testing.assert_close(found, 0.3 * said.sqrt(), rtol=1e-4, atol=1e-6)
            assert found.norm() == pytest.approx(0.3, abs=1e-5)


def test_classes_are_those_of_the_last_map() -> None:
    with pytest.raises(ValueError, match="no linear map of the 24 channels of its last map"):
        _ = Hypercolumns("resnet10t", ("layer2", "layer3"), classes=True, size=96, model_arguments=SMALL).dim


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": ("layer5",)}, "no layer 'layer5'"),
        ({"layers": ()}, "0 layers"),
        ({"power": 0.0}, r"power 0.0.*in \(0, 1\]"),
        ({"lower_norm": -1.0}, "lower_norm -1.0"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hypercolumns(**{"backbone": "resnet10t", "layers": LAYERS, "model_arguments": SMALL} | arguments)
