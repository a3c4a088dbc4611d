"""Heads against loops over their definition."""

import pytest
import torch

from bifocal import registry
from bifocal.ranking_heads import MLPHead, WildcatHead
from bifocal.ranking_heads.serialization import load_head, save_head

HEADS = registry.registered("bifocal.ranking_heads")


def regions(images: int = 3, most: int = 5, dim: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Random regions; image i has i + 1 fewer than the most."""
    features = torch.randn(images, most, dim, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(most) < most - torch.arange(images).unsqueeze(1)
    return features, mask


def wildcat(maps: list[list[float]], alpha: float, highest: float, lowest: float) -> list[float]:
    """One image: maps[region][class]."""
    count = len(maps)
    scores = []
    for column in zip(*maps, strict=True):
        high, low = (max(1, round(fraction * count)) for fraction in (highest, lowest))
        ordered = sorted(column)
        scores.append(sum(ordered[-high:]) / high + alpha * sum(ordered[:low]) / low)
    return scores


@pytest.mark.parametrize(("alpha", "highest", "lowest"), [(0.7, 0.4, 0.2), (0.0, 1.0, 0.5), (1.0, 0.01, 0.9)])
def test_wildcat_is_its_definition_and_sees_only_the_regions_that_are_there(alpha, highest, lowest):
    features, mask = regions()
    head = WildcatHead(4, 2, maps=3, alpha=alpha, highest=highest, lowest=lowest)
    weight, bias = head.convolution.weight.tolist(), head.convolution.bias.tolist()
    for image, present, found in zip(features, mask, head(features, mask).tolist(), strict=True):
        maps = []
        for region in image[present].tolist():
            values = [
                sum(w * x for w, x in zip(row, region, strict=True)) + b for row, b in zip(weight, bias, strict=True)
            ]
            maps.append([sum(values[3 * c : 3 * c + 3]) / 3 for c in range(2)])
        assert found == pytest.approx(wildcat(maps, alpha, highest, lowest), abs=1e-5)


def test_wildcat_says_where_it_sees_a_class():
    head = WildcatHead(4, 2)
    features, mask = regions()
    pooled = WildcatHead(4, 2, alpha=0.0, highest=0.01)
    pooled.load_state_dict(head.state_dict())
    maps = head.class_maps(features).masked_fill(~mask.unsqueeze(2), -torch.inf)
    torch.testing.assert_close(pooled(features, mask), maps.amax(dim=1))
    with pytest.raises(ValueError, match="highest is 0"):
        WildcatHead(highest=0)


@pytest.mark.parametrize("hidden", [0, 8])
def test_mlp_is_a_perceptron_of_the_mean_of_the_regions_that_are_there(hidden):
    features, mask = regions()
    head = MLPHead(4, 2, hidden)
    means = torch.stack([image[present].mean(dim=0) for image, present in zip(features, mask, strict=True)])
    torch.testing.assert_close(head(features, mask), head.layers(means))


@pytest.mark.parametrize("name", sorted(HEADS))
class TestEveryHead:
    def test_builds_with_its_defaults_and_gives_one_score_a_label(self, name):
        features, mask = regions(dim=2048)
        scores = registry.build("bifocal.ranking_heads", name, labels=7)(features, mask)
        assert scores.shape == (3, 7)
        assert registry.build("bifocal.ranking_heads", name)(features, mask).isfinite().all()

    def test_what_is_masked_changes_nothing_and_all_else_does(self, name):
        features, mask = regions()
        head = registry.build("bifocal.ranking_heads", name, input_dim=4, labels=2)
        noise = torch.where(mask.unsqueeze(2), features, 99.0)
        torch.testing.assert_close(head(noise, mask), head(features, mask))
        head(features.requires_grad_(), mask).sum().backward()
        assert features.grad is not None
        assert (features.grad[~mask] == 0).all()
        assert (features.grad.abs().sum(dim=(1, 2)) > 0).all()

    def test_comes_back_from_its_folder(self, name, tmp_path):
        features, mask = regions()
        head = registry.build("bifocal.ranking_heads", name, input_dim=4, labels=2)
        save_head(tmp_path, head, {}, input_dim=4, task="t", labels=["cat", "dog"])
        loaded, labels = load_head(tmp_path)
        assert labels == ["cat", "dog"]
        torch.testing.assert_close(loaded(features, mask), head(features, mask))


def test_a_folder_without_a_head_says_which_stage_to_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="train_ranking_head"):
        load_head(tmp_path)
