"""Ranking heads against loops over their definition."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bifocal.ranking_heads import MLPHead, WildcatHead
from bifocal.ranking_heads.model import load_head


def new_regions(images: int = 3, regions: int = 5, dim: int = 4) -> tuple[Tensor, Tensor]:
    """Random regions; image i has i regions fewer than the first."""
    features = torch.randn(images, regions, dim, generator=torch.Generator().manual_seed(0))
    return features, torch.arange(regions) < regions - torch.arange(images).unsqueeze(1)


def wildcat(maps: list[list[float]], alpha: float, highest: float, lowest: float) -> list[float]:
    """Scores of one image from its class maps, maps[region][class]."""
    count = len(maps)
    scores = []
    for column in zip(*maps, strict=True):
        high, low = (max(1, round(fraction * count)) for fraction in (highest, lowest))
        ordered = sorted(column)
        scores.append(sum(ordered[-high:]) / high + alpha * sum(ordered[:low]) / low)
    return scores


@pytest.mark.parametrize(
    ("alpha", "highest", "lowest"), [(0.7, 0.4, 0.2), (0.0, 1.0, 0.5), (1.0, 0.01, 0.9)]
)
def test_wildcat_head_is_its_definition(alpha: float, highest: float, lowest: float) -> None:
    features, mask = new_regions()
    head = WildcatHead(4, 2, maps=3, alpha=alpha, highest=highest, lowest=lowest)
    weight, bias = head.convolution.weight.tolist(), head.convolution.bias.tolist()
    for image, present, scores in zip(features, mask, head(features, mask).tolist(), strict=True):
        maps = []
        for region in image[present].tolist():
            values = [
                sum(w * x for w, x in zip(row, region, strict=True)) + b
                for row, b in zip(weight, bias, strict=True)
            ]
            maps.append([sum(values[3 * c : 3 * c + 3]) / 3 for c in range(2)])
        assert scores == pytest.approx(wildcat(maps, alpha, highest, lowest), abs=1e-5)


def test_wildcat_class_maps_locate_a_class() -> None:
    head = WildcatHead(4, 2)
    features, mask = new_regions()
    maximum = WildcatHead(4, 2, alpha=0.0, highest=0.01)
    maximum.load_state_dict(head.state_dict())
    maps = head.class_maps(features).masked_fill(~mask.unsqueeze(2), -torch.inf)
    torch.testing.assert_close(maximum(features, mask), maps.amax(dim=1))


def test_wildcat_head_rejects_fractions_outside_0_to_1() -> None:
    with pytest.raises(ValueError, match="highest is 0"):
        WildcatHead(highest=0)


@pytest.mark.parametrize("hidden", [0, 8])
def test_mlp_head_is_a_perceptron_of_the_mean_region(hidden: int) -> None:
    features, mask = new_regions()
    head = MLPHead(4, 2, hidden)
    means = torch.stack(
        [image[present].mean(dim=0) for image, present in zip(features, mask, strict=True)]
    )
    torch.testing.assert_close(head(features, mask), head.layers(means))


def test_load_head_names_a_directory_without_a_head(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no ranking head: config\.json is missing"):
        load_head(tmp_path)
