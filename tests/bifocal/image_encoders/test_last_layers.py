"""The last layers of a backbone on stored maps: equal to the whole backbone, before and after
training."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bifocal.backbones.timm.trainable import TailLayers
from bifocal.export.encoders import export_encoder
from bifocal.export.graphs.parity import compare_encoder
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes, mirrored
from bifocal.features.extractors import Grid
from bifocal.image_encoders import LastLayersEncoder
from bifocal.image_encoders.last_layers import _SignedPower, signed_power
from bifocal.models import build_model, save_model

SIZE, CHANNELS = 64, (8, 16, 24, 32)
SMALL = {"channels": list(CHANNELS), "stem_width": 8}


def small_encoder(power: float = 0.5, mirror: bool = True) -> LastLayersEncoder:
    return LastLayersEncoder(
        CHANNELS[2], 5, "resnet10t", "layer3", 4, mirror, power, model_arguments=SMALL
    )


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("resnet10t", "layer3"),
        ("tf_efficientnet_lite0", "blocks.5.1"),
        ("convnext_atto", "stages.2"),
    ],
)
def test_the_rest_of_the_network_equals_the_network(name: str, after: str) -> None:
    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=0).eval()
    outputs: list[Tensor] = []
    hook = network.get_submodule(after).register_forward_hook(
        lambda module, inputs, output: outputs.append(output)
    )
    expected = network.forward_features(torch.rand(2, 3, SIZE, SIZE))
    hook.remove()
    rest = TailLayers(network, after)
    torch.testing.assert_close(rest(outputs[0])[0], expected, rtol=0, atol=0)
    assert sum(weights.numel() for weights in rest.parameters()) < sum(
        w.numel() for w in network.parameters()
    )


def test_a_layer_that_is_no_step_is_refused() -> None:
    network = timm.create_model("resnet10t", num_classes=0)
    with pytest.raises(ValueError, match="ResNet has no layer 'layer9'"):
        TailLayers(network, "layer9")
    with pytest.raises(
        ValueError, match=r"layer3\.0\.conv1 is not a step of ResNet\.forward_features"
    ):
        TailLayers(network, "layer3.0.conv1")


@pytest.mark.parametrize(
    ("name", "after", "also"),
    [
        ("resnet10t", "layer2", ["layer2", "layer3"]),
        ("tf_efficientnet_lite0", "blocks.5.1", ["blocks.5.2", "blocks.6"]),
    ],
)
def test_outputs_of_further_layers_are_those_of_the_network(
    name: str, after: str, also: list[str]
) -> None:
    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=0).eval()
    outputs: dict[str, Tensor] = {}
    for layer in (after, *also):
        network.get_submodule(layer).register_forward_hook(
            lambda module, inputs, output, layer=layer: outputs.update({layer: output})
        )
    last = network.forward_features(torch.rand(2, 3, SIZE, SIZE))
    expected = dict(outputs)
    found = TailLayers(network, after, also)(expected[after])
    for value, other in zip(found, [*(expected[layer] for layer in also), last], strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=0)
    with pytest.raises(ValueError, match="'layer9' is not a step"):
        TailLayers(network, after, ["layer9"])


def test_further_layers_join_the_mean(tmp_path: Path) -> None:
    torch.manual_seed(0)
    grid = Grid("resnet10t", stage="layer2", size=SIZE, classifier=True, model_arguments=SMALL)
    save_file(grid.backbone.network.state_dict(), tmp_path / "weights.safetensors")
    encoder = LastLayersEncoder(
        CHANNELS[1], 5, "resnet10t", "layer2", 8, False, also=["layer3"], model_arguments=SMALL
    ).eval()
    encoder.load_pretrained(tmp_path)
    pixels = torch.randint(0, 256, (3, 3, SIZE, SIZE), dtype=torch.uint8)
    stored = torch.stack([image.features for image in grid.extract(list(pixels))])
    with torch.inference_mode():
        third, last = grid.backbone.layer_maps(pixels, ["layer3", "layer4"])
        expected = []
        for image in range(3):
            cells = last[image].flatten(1).T
            quarters = (
                third[image].unflatten(1, (2, 2)).unflatten(3, (2, 2)).mean(dim=(2, 4)).flatten(1).T
            )
            joined = torch.cat([quarters, cells], dim=1).double()
            expected.append((joined.sign() * joined.abs().sqrt()).mean(dim=0))
        found = encoder.pooled(stored, torch.ones(stored.shape[:2], dtype=torch.bool))
    torch.testing.assert_close(
        found.double(), torch.stack(expected), atol=0.011, rtol=0
    )  # the root of EPSILON is 0.01


@pytest.mark.parametrize("mirror", [False, True])
def test_embedding_of_stored_maps_equals_that_of_the_image(mirror: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    grid = Grid("resnet10t", stage="layer3", size=SIZE, mirror=mirror, model_arguments=SMALL)
    save_file(grid.backbone.network.state_dict(), tmp_path / "weights.safetensors")
    pixels = torch.randint(0, 256, (3, 3, SIZE, SIZE), dtype=torch.uint8)
    stored = torch.stack([image.features for image in grid.extract(list(pixels))])
    encoder = small_encoder(1.0, mirror).eval()
    encoder.load_pretrained(tmp_path)
    center, variance = torch.rand(CHANNELS[3]), torch.rand(CHANNELS[3]) + 0.5
    encoder.standardize.load_state_dict(
        encoder.standardize.state_dict() | {"running_mean": center, "running_var": variance}
    )
    with torch.inference_mode():
        views = [pixels, pixels.flip(3)] if mirror else [pixels]
        mean = torch.stack(
            [grid.backbone.feature_map(view, None).mean(dim=(2, 3)) for view in views]
        ).mean(dim=0)
        scaled = (mean - center) / (variance + 1e-5).sqrt()
        expected = nn.functional.normalize(encoder.projection(scaled), dim=1)
        vectors = encoder(stored, torch.ones(stored.shape[:2], dtype=torch.bool))
    torch.testing.assert_close(vectors, expected, atol=1e-3, rtol=0)  # EPSILON is 1e-4
    assert grid.describe()["layer"] == "layer3"


def test_mean_of_the_activation_maps_is_the_embedding() -> None:
    torch.manual_seed(0)
    encoder = small_encoder().eval()
    features, mask = torch.rand(2, 32, CHANNELS[2]), torch.ones(2, 32, dtype=torch.bool)
    boxes = torch.cat([cell_boxes(4, 4), mirrored(cell_boxes(4, 4))]).expand(2, -1, -1)
    maps = encoder.activation_maps(RegionBatch(features, mask, boxes))
    assert maps.vectors.shape == (2, 8, 5)  # layer4 halves the map
    mean = nn.functional.normalize(maps.vectors.mean(dim=1), dim=1)
    torch.testing.assert_close(mean, encoder(features, mask))
    torch.testing.assert_close(maps.boxes[0, :4], cell_boxes(2, 2))
    torch.testing.assert_close(
        maps.boxes[0, 4], cell_boxes(2, 2)[1]
    )  # the first mirrored cell is the upper right one


def test_training_changes_the_layers_and_keeps_their_batch_norm() -> None:
    torch.manual_seed(0)
    encoder = small_encoder().train()
    before = {name: tensor.clone() for name, tensor in encoder.layers.state_dict().items()}
    encoder(torch.rand(4, 32, CHANNELS[2]), torch.ones(4, 32, dtype=torch.bool))[
        :, 0
    ].sum().backward()
    gradients = dict(encoder.layers.named_parameters())
    assert all(
        weights.grad is not None and weights.grad.isfinite().all() for weights in gradients.values()
    )
    after = encoder.layers.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if "running" in name)


def test_a_step_sees_one_view_of_each_image() -> None:
    torch.manual_seed(0)
    encoder, maps = small_encoder().train(), torch.rand(1, 2, 16, CHANNELS[2])
    encoder.dropout.p = 0.0
    seen = []
    encoder.layers.register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0].flatten(2).transpose(1, 2))
    )
    mask = torch.ones(20, 32, dtype=torch.bool)
    encoder(maps.flatten(1, 2).expand(20, -1, -1), mask)
    drawn = [bool(torch.equal(view, maps[0, 1])) for view in seen[0]]
    assert set(drawn) == {True, False}
    assert all(
        torch.equal(view, maps[0, int(second)]) for view, second in zip(seen[0], drawn, strict=True)
    )


@pytest.mark.parametrize("power", [0.3, 0.5, 1.0])
def test_signed_power_has_the_gradient_of_its_formula(power: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    expected = x.sign() * (x.abs() + 1e-4) ** power
    torch.testing.assert_close(signed_power(x, power), expected)
    weights = torch.randn(4, 5, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((_SignedPower.apply(x, power) * weights).sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * weights).sum(), x)[0])


def test_depthwise_convolutions_keep_their_weights() -> None:
    layers = TailLayers(timm.create_model("tf_efficientnet_lite0", num_classes=0), "blocks.5.1")
    frozen = {name for name, weights in layers.named_parameters() if not weights.requires_grad}
    assert frozen == {name for name, _ in layers.named_parameters() if "conv_dw" in name}


def test_a_step_sees_the_rectangle_of_the_mask() -> None:
    torch.manual_seed(0)
    encoder = LastLayersEncoder(
        CHANNELS[1], 5, "resnet10t", "layer2", 8, False, model_arguments=SMALL
    ).train()
    maps, mask = torch.rand(3, 8, 8, CHANNELS[1]), torch.zeros(3, 8, 8, dtype=torch.bool)
    places = [(0, 0), (2, 3), (1, 2)]
    for image, (row, column) in enumerate(places):
        mask[image, row : row + 6, column : column + 5] = True
    parts = [maps[image, r : r + 6, c : c + 5].movedim(2, 0) for image, (r, c) in enumerate(places)]
    expected = torch.cat(
        [layer.mean(dim=(1, 2)) for layer in encoder._activations(torch.stack(parts).unsqueeze(1))],
        1,
    )
    torch.testing.assert_close(encoder.pooled(maps.flatten(1, 2), mask.flatten(1)), expected)
    mask[0, 0, 0] = False
    with pytest.raises(ValueError, match="no cells but outside a RandomRectangle"):
        encoder(maps.flatten(1, 2), mask.flatten(1))


def test_graph_of_two_members_equals_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = {
        "name": "LastLayersEncoder",
        "backbone": "resnet10t",
        "layer": "layer2",
        "also": ["layer3"],
        "cells": 8,
        "model_arguments": SMALL,
    }
    ref = {
        "name": "TwoBranchModel",
        "dim": 5,
        "image_encoder": encoder,
        "text_encoder": "LinearEncoder",
    }
    save_model(
        tmp_path,
        build_model(ref, feature_dim=CHANNELS[1], text_dim=4, text_format="vectors", members=2),
    )
    export_encoder(tmp_path, "image_encoder", tmp_path / "image_encoder.onnx")
    parities = list(
        compare_encoder(tmp_path, "image_encoder", tmp_path / "image_encoder.onnx", seed=0)
    )
    assert {parity.batch for parity in parities} == {1, 2, 5}
    assert max(parity.difference for parity in parities) < 1e-5


@pytest.mark.parametrize("cells", [16, 32])
def test_maps_of_another_size_are_refused(cells: int) -> None:
    mask = torch.ones(1, cells, dtype=torch.bool)
    mask[0, 0] = cells != 32
    with pytest.raises(ValueError, match="expected 32 cells of every image"):
        small_encoder().eval()(torch.rand(1, cells, CHANNELS[2]), mask)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"power 0\.0, dropout 0\.2"):
        small_encoder(power=0.0)
