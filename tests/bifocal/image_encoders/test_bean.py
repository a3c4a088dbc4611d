"""BEANEncoder against loops over eq. (1)-(3), on pixels and on stored cells."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bifocal.backbones.timm.trainable import random_crops, whole_images
from bifocal.image_encoders import BEANEncoder, RMACEncoder

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}


def bean(encoder: BEANEncoder, cells: list[list[float]], pooling: str, k: int = 1) -> list[float]:
    """Eq. (1)-(3), in loops over maps and cells."""
    weight = encoder.adaptation.weight.tolist()
    maps = [
        [sum(w * f for w, f in zip(row, cell, strict=True)) for cell in cells] for row in weight
    ]
    k = min(k, len(cells))
    extremes = [(sum(sorted(g)[-k:]) + sum(sorted(g)[:k])) / k for g in maps]
    pooled = extremes if pooling == "max_min" else [sum(g) / len(g) for g in maps]
    matrix, bias = encoder.projection.weight.tolist(), encoder.projection.bias.tolist()
    x = [
        sum(a * h for a, h in zip(row, pooled, strict=True)) + b
        for row, b in zip(matrix, bias, strict=True)
    ]
    norm = math.sqrt(sum(value * value for value in x))
    return [value / norm for value in x]


def small(**changes: object) -> BEANEncoder:
    torch.manual_seed(0)
    arguments = {"dim": 5, "maps": 7, "backbone": "resnet10t", "model_arguments": SMALL, **changes}
    encoder = BEANEncoder(**arguments)
    return encoder.double().eval()


def images(*sizes: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return random images of the given heights and widths, padded with zeros, and their mask."""
    generator = torch.Generator().manual_seed(1)
    side = max(max(size) for size in sizes)
    pixels, mask = (
        torch.zeros(len(sizes), 3, side, side).double(),
        torch.zeros(len(sizes), side, side).bool(),
    )
    for number, (height, width) in enumerate(sizes):
        image = torch.randint(0, 256, (3, height, width), generator=generator).double()
        pixels[number, :, :height, :width], mask[number, :height, :width] = image, True
    return pixels, mask


@pytest.mark.parametrize(
    ("pooling", "k"), [("max_min", 1), ("max_min", 2), ("max_min", 4), ("average", 1)]
)
def test_bean_over_cells_equals_equations_and_ignores_padding_and_order(
    pooling: str, k: int
) -> None:
    encoder = small(input_dim=6, backbone=None, pooling=pooling, extremes=k)
    features = torch.randn(2, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    embeddings = encoder(features, mask)
    for row in range(2):
        expected = bean(encoder, features[row, mask[row]].tolist(), pooling, k)
        torch.testing.assert_close(embeddings[row].tolist(), expected)
    order = torch.randperm(5)
    torch.testing.assert_close(encoder(features[:, order], mask[:, order]), embeddings)


def test_bean_over_pixels_equals_equations_for_any_image_size() -> None:
    encoder = small(eval_resize="as_is")
    sizes = ((64, 64), (40, 97), (64, 64), (33, 50))
    pixels, mask = images(*sizes)
    embeddings = encoder(pixels, mask)
    mean, deviation = (
        torch.tensor(values).view(1, 3, 1, 1)
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    for row, (height, width) in enumerate(sizes):
        normalized = (pixels[row : row + 1, :, :height, :width] / 255 - mean) / deviation
        maps = encoder.backbone.network.forward_features(normalized)[0]
        cells = [maps[:, y, x].tolist() for y in range(maps.shape[1]) for x in range(maps.shape[2])]
        torch.testing.assert_close(
            embeddings[row].tolist(), bean(encoder, cells, "max_min"), rtol=1e-5, atol=1e-6
        )


def test_half_of_the_crops_are_mirrored() -> None:
    torch.manual_seed(0)
    ramp = torch.arange(64.0).expand(3, 48, 64)
    crops = random_crops([ramp] * 200, 8, mirror=True)
    mirrored = (crops[:, 0, 0, -1] < crops[:, 0, 0, 0]).sum().item()
    assert 80 <= mirrored <= 120
    assert (random_crops([ramp] * 20, 8).diff(dim=3) > 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pooling": "average", "extremes": 15}, "extremes is for pooling 'max_min'"),
        ({"mirror": True, "crop": None}, "mirror is for random crops"),
        ({"mirror": True, "backbone": None}, "mirror is for random crops"),
    ],
)
def test_arguments_without_an_effect_are_named(arguments: dict[str, object], message: str) -> None:
    assert message in " ".join(BEANEncoder.conflicts(arguments))


def test_the_arguments_of_the_authors_code_have_no_conflict() -> None:
    assert not list(BEANEncoder.conflicts({"extremes": 15, "mirror": True, "crop": 256}))


def test_eval_resize_stretches_crops_or_keeps_image() -> None:
    pixels, mask = images((64, 96))
    ramp = torch.arange(96.0).double().expand(3, 64, 96)
    pixels[0, :, :64] = ramp
    inputs_of_backbone: list[Tensor] = []
    for eval_resize in ("stretch", "scale_and_crop", "as_is"):
        encoder = small(eval_resize=eval_resize, image_size=32)
        encoder.backbone.register_forward_pre_hook(
            lambda module, inputs: inputs_of_backbone.append(inputs[0][0, 0])
        )
        encoder(pixels, mask)
    stretched, central, whole = inputs_of_backbone
    assert (stretched.shape, central.shape, whole.shape) == ((32, 32), (224, 224), (64, 96))
    # Stretching averages 3 of the columns 0 to 95 per pixel. The central crop has columns 20 to 75.
    torch.testing.assert_close(
        stretched[0, 1:-1], 3 * torch.arange(1.0, 31).double() + 1, rtol=0.05, atol=0.1
    )
    assert (central[0, 0], central[0, -1]) == (
        pytest.approx(20, abs=0.5),
        pytest.approx(75, abs=0.5),
    )
    torch.testing.assert_close(whole, ramp[0])


def test_random_crops_lie_inside_image_and_repeat_by_seed() -> None:
    pixels, mask = images((40, 70), (64, 30))
    pixels[mask.unsqueeze(1).expand(-1, 3, -1, -1)] = (
        200.0  # padding stays 0, so a crop with padding fails the test
    )
    torch.manual_seed(3)
    first = random_crops(whole_images(pixels, mask), 32)
    assert first.shape == (2, 3, 32, 32)
    torch.testing.assert_close(first, torch.full_like(first, 200.0))
    varied, mask = images((64, 64))
    torch.manual_seed(3)
    one, two = (
        random_crops(whole_images(varied, mask), 16),
        random_crops(whole_images(varied, mask), 16),
    )
    torch.manual_seed(3)
    assert random_crops(whole_images(varied, mask), 16).equal(one)
    assert not one.equal(two)


def test_crops_and_dropout_apply_in_training_only() -> None:
    encoder = small(crop=32, image_size=64)
    pixels, mask = images((64, 64), (64, 64))
    assert encoder(pixels, mask).equal(encoder(pixels, mask))
    encoder.train()
    assert not encoder(pixels, mask).equal(encoder(pixels, mask))
    encoder(pixels, mask).sum().backward()
    assert all(weight.grad is not None for weight in encoder.parameters())


def test_load_pretrained_copies_weights_of_artifact(tmp_path: Path) -> None:
    source, target = small(), small(maps=7)
    with torch.no_grad():
        for weight in source.parameters():
            weight.add_(0.5)
    pretrained = dict(source.backbone.network.state_dict()) | {
        "adaptation.weight": source.adaptation.weight.detach()
    }
    for encoder in (target, RMACEncoder(dim=5, backbone="resnet10t", model_arguments=SMALL)):
        with pytest.raises(
            FileNotFoundError, match=r"weights\.safetensors is missing.*with ImageFiles or Pixels"
        ):
            encoder.load_pretrained(tmp_path)
    save_file(pretrained, tmp_path / "weights.safetensors")
    target.load_pretrained(tmp_path)
    for name, value in source.backbone.network.state_dict().items():
        assert target.backbone.network.state_dict()[name].equal(value)
    assert target.adaptation.weight.equal(source.adaptation.weight)
    with pytest.raises(
        ValueError,
        match=r"does not fit Linear: 1 of another shape \(weight \(7, 32\) for \(9, 32\)\)",
    ):
        small(maps=9).load_pretrained(tmp_path)
    cells = small(input_dim=32, backbone=None)
    cells.load_pretrained(tmp_path)
    assert cells.adaptation.weight.equal(source.adaptation.weight)


def test_bean_rejects_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="no pooling 'sum'; BEANEncoder has max_min and average"):
        BEANEncoder(6, backbone=None, pooling="sum")
    with pytest.raises(ValueError, match="no eval_resize 'crop'"):
        BEANEncoder(6, backbone=None, eval_resize="crop")
    with pytest.raises(ValueError, match="reads pixels, of 3 channels, and the features have 2048"):
        BEANEncoder(2048)
