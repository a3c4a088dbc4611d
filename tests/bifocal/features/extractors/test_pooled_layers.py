"""Pooled layers against hooks and loops over cells."""

from typing import Any

import pytest
import torch

from bifocal.features.extractors import PooledLayers

SMALL: dict[str, Any] = {"channels": [8, 16, 24, 32], "stem_width": 8, "num_classes": 7}


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_each_layer_is_the_mean_of_its_raised_cells(power: float) -> None:
    torch.manual_seed(0)
    extractor = PooledLayers(
        "resnet10t", ("layer2", "layer4"), power, size=96, model_arguments=SMALL
    )
    pixels = torch.randint(0, 256, (2, 3, 96, 96), dtype=torch.uint8)
    network = extractor.backbone.network
    with torch.inference_mode():
        maps = extractor.backbone.layer_maps(pixels, ["layer2", "layer4"])
        for number, image in enumerate(extractor.extract(list(pixels))):
            expected: list[float] = []
            for layer in maps:
                for channel in layer[number].double():
                    cells = [float(x) for x in channel.flatten()]
                    expected.append(
                        sum((-1) ** (x < 0) * abs(x) ** power for x in cells) / len(cells)
                    )
            cells = maps[1][number].flatten(1).T
            probabilities = (cells @ network.fc.weight.T + network.fc.bias).double().softmax(dim=1)
            expected += [float(value) ** power for value in probabilities.mean(dim=0)]
            assert image.features.shape == (1, extractor.dim) == (1, 16 + 32 + 7)
            assert image.features[0].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="layers is 0: expected 1 or more"):
        PooledLayers("resnet10t", ())
    with pytest.raises(ValueError, match=r"power is 0: expected a number in \(0, 1\]"):
        PooledLayers("resnet10t", ("layer2", "layer3"), power=0)
