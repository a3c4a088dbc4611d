"""Folded batch norm gives the outputs of the network, under the same names."""

import pytest
import timm
import torch
from torch import nn

from bifocal.backbones.folding import folded

NETWORKS = [
    "resnet10t",
    "mobilenetv3_small_050",
    "tf_efficientnet_lite0",
    "convnext_atto",
    "test_vit",
]


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_have_the_outputs_of_the_network(name: str) -> None:
    torch.manual_seed(0)
    network = timm.create_model(name).eval()
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:  # as after a training
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.normal_(std=0.1)
        norm.running_var.uniform_(0.5, 2)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.1)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    layers = [layer for layer, _ in network.named_modules() if layer.count(".") < 2]
    layers = [
        layer
        for layer in layers
        if not layer.startswith(("fc", "head", "classifier", "global_pool"))
    ][1:]
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded(network).modules())
    other, pixels = folded(network, layers), torch.rand(2, 3, 160, 160)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in other.modules()) < max(
        1, len(norms)
    )
    outputs: list[dict[str, torch.Tensor]] = []
    for candidate in (network, other):
        found: dict[str, torch.Tensor] = {}
        for layer in layers:
            candidate.get_submodule(layer).register_forward_hook(
                lambda module, inputs, output, layer=layer, found=found: found.update(
                    {layer: output}
                )
            )
        with torch.inference_mode():
            found["features"] = candidate.forward_features(pixels)
        outputs.append(found)
    assert outputs[0].keys() == outputs[1].keys() >= {"features"}
    for layer, value in outputs[0].items():
        torch.testing.assert_close(
            outputs[1][layer], value, rtol=1e-3, atol=1e-3 * float(value.abs().max())
        )
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


class Branching(nn.Module):
    """A network with control flow that depends on its values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(self.conv(pixels))
        return found if found.sum() > 0 else -found


class Shared(nn.Module):
    """A convolution with two readers, and a norm that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.other, self.norm = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found = self.conv(pixels)
        total: torch.Tensor = found + self.norm(found) + self.norm(self.other(pixels))
        return total


@pytest.mark.parametrize("network", [Branching(), Shared()])
def test_what_cannot_be_folded_stays(network: nn.Module) -> None:
    network.eval()
    other, pixels = folded(network), torch.rand(1, 3, 8, 8)
    assert isinstance(other.norm, nn.BatchNorm2d)
    assert other.norm is not network.norm
    assert torch.equal(other(pixels), network(pixels))
