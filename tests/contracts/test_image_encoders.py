"""Promises of every registered image encoder: features and mask, or pixels and mask -> (B, d), of
unit norm."""

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor

from bifocal import registry
from bifocal.export.graphs.write import run_in_fresh_process
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import ResidualHead
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization.base import Localizer
from bifocal.serialization import load_state, save_network
from tests.contracts.onnx_graphs import assert_parity, export

PACKAGE = "bifocal.image_encoders"
ENCODERS = registry.registered(PACKAGE)
INPUT_DIM, DIM = 6, 4
NETWORK = {"backbone": "resnet10t", "model_arguments": {"channels": [4, 4, 4, 8], "stem_width": 4}}
SMALL: dict[str, list[dict[str, Any]]] = {
    "BEANEncoder": [
        {"maps": 6, "backbone": None},
        {"maps": 6, "crop": None, "eval_resize": "as_is", **NETWORK},
    ],
    "LastLayersEncoder": [
        {
            "backbone": "resnet10t",
            "layer": "layer3",
            "cells": 2,
            "model_arguments": {"channels": [4, 4, INPUT_DIM, 8], "stem_width": 4},
        }
    ],
    "MultiLevelEncoder": [
        {"levels": 2},
        {"levels": 2, "layers": ["layer2", "layer4"], "cells": 3, "image_size": 64, **NETWORK},
    ],
    "ProjectionEncoder": [{"hidden": 5}],
    "RMACEncoder": [{**NETWORK}],
    "ResidualHead": [{"hidden": 5}],
    "SMILEEncoder": [
        {},
        *({"ablation": name} for name in ("mean", "scalar", "no_convolution", "no_softmax")),
    ],
}
CASES = [(name, arguments) for name in sorted(ENCODERS) for arguments in SMALL.get(name, [{}])]
IDS = [
    f"{name}-{arguments.get('ablation') or arguments.get('backbone', '')}"
    for name, arguments in CASES
]


def new_encoder(name: str, arguments: dict[str, Any], seed: int = 0) -> ImageEncoder:
    torch.manual_seed(seed)
    input_dim = 3 if arguments.get("backbone") and name != "LastLayersEncoder" else INPUT_DIM
    encoder: ImageEncoder = registry.build(
        PACKAGE, {"name": name, **arguments}, input_dim=input_dim, dim=DIM
    )
    if isinstance(encoder, ResidualHead):  # as after a training
        torch.nn.init.normal_(encoder.head.layers[-1].weight)
    return encoder.eval()


def reads_whole_maps(encoder: ImageEncoder) -> bool:
    """Whether the encoder needs all cells of a map, in their order."""
    return isinstance(encoder.input_shape[1], int) and not encoder.reads_pixels


def new_inputs(encoder: ImageEncoder, images: int = 3, padding: int = 0) -> tuple[Tensor, Tensor]:
    """Random images and their mask; the last image is smaller than the others, unless all cells are
    needed."""
    generator = torch.Generator().manual_seed(1)
    if encoder.reads_pixels:
        pixels = 255 * torch.rand(images, 3, 64, 64, generator=generator)
        mask = torch.ones(images, 64, 64, dtype=torch.bool)
        mask[-1, :, 40:] = False
        pixels = pixels * mask.unsqueeze(1)
        return torch.nn.functional.pad(pixels, (0, padding) * 2), torch.nn.functional.pad(
            mask, (0, padding) * 2
        )
    features = torch.randn(images, 8, INPUT_DIM, generator=generator)
    mask = torch.ones(images, 8, dtype=torch.bool)
    mask[-1, 7] = reads_whole_maps(encoder)
    noise = torch.full((images, padding, INPUT_DIM), 7.0)
    return torch.cat([features, noise], dim=1), torch.cat(
        [mask, torch.zeros(images, padding).bool()], dim=1
    )


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_builds_with_the_defaults_of_its_paper(name: str) -> None:
    with torch.device("meta"):
        encoder = registry.build(PACKAGE, name)
    assert isinstance(encoder, ImageEncoder)
    assert encoder.dim > 1


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
class TestEveryImageEncoder:
    def test_gives_float32_vectors_of_unit_norm(self, name: str, arguments: dict[str, Any]) -> None:
        encoder = new_encoder(name, arguments)
        vectors = encoder(*new_inputs(encoder))
        assert vectors.shape[0] == 3
        assert vectors.shape[-1] == encoder.dim == DIM
        assert vectors.dtype == torch.float32
        norms = vectors.norm(dim=-1)
        torch.testing.assert_close(norms[norms > 0], torch.ones_like(norms[norms > 0]))

    def test_gives_a_finite_vector_and_gradient_without_a_region(
        self, name: str, arguments: dict[str, Any]
    ) -> None:
        encoder = new_encoder(name, arguments)
        features, mask = new_inputs(encoder)
        if encoder.reads_pixels or name == "LastLayersEncoder":
            return  # the first have pixels in every image, the other refuses missing cells
        vectors = encoder(features * 0, torch.zeros_like(mask))
        vectors.sum().backward()
        assert vectors.isfinite().all()
        assert all(
            weight.grad is None or weight.grad.isfinite().all() for weight in encoder.parameters()
        )

    def test_ignores_masked_regions_and_pixels(self, name: str, arguments: dict[str, Any]) -> None:
        encoder = new_encoder(name, arguments)
        features, mask = new_inputs(encoder)
        present = mask.unsqueeze(1 if encoder.reads_pixels else 2)
        torch.testing.assert_close(
            encoder(features.where(present, 99.0), mask), encoder(features, mask)
        )

    def test_is_invariant_to_padding(self, name: str, arguments: dict[str, Any]) -> None:
        encoder = new_encoder(name, arguments)
        vectors = encoder(*new_inputs(encoder))
        if vectors.ndim == 2:  # the cells of several levels have no padding
            torch.testing.assert_close(encoder(*new_inputs(encoder, padding=3)), vectors)

    def test_encodes_images_independently(self, name: str, arguments: dict[str, Any]) -> None:
        encoder = new_encoder(name, arguments)
        features, mask = new_inputs(encoder)
        vectors, order = encoder(features, mask), torch.tensor([2, 0, 1])
        torch.testing.assert_close(encoder(features[order], mask[order]), vectors[order])
        for row in range(3):
            torch.testing.assert_close(
                encoder(features[row : row + 1], mask[row : row + 1])[0], vectors[row]
            )

    def test_is_invariant_to_the_order_of_regions(
        self, name: str, arguments: dict[str, Any]
    ) -> None:
        encoder = new_encoder(name, arguments)
        features, mask = new_inputs(encoder)
        vectors, order = encoder(features, mask), torch.tensor([5, 0, 7, 2, 1, 6, 4, 3])
        if vectors.ndim == 2 and not encoder.reads_pixels and not reads_whole_maps(encoder):
            torch.testing.assert_close(encoder(features[:, order], mask[:, order]), vectors)

    def test_has_a_gradient_for_every_parameter(self, name: str, arguments: dict[str, Any]) -> None:
        encoder = new_encoder(name, arguments).train()
        vectors = encoder(*new_inputs(encoder, images=4))
        weights = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(2))
        (vectors * weights).sum().backward()
        assert [
            key
            for key, weight in encoder.named_parameters()
            if weight.requires_grad and weight.grad is None
        ] == []

    def test_is_the_same_after_save_and_load(
        self, name: str, arguments: dict[str, Any], tmp_path: Path
    ) -> None:
        encoder, other = new_encoder(name, arguments), new_encoder(name, arguments, seed=7)
        save_network(tmp_path, {"name": name}, encoder.state_dict())
        other.load_state_dict(load_state(tmp_path))
        inputs = new_inputs(encoder)
        assert encoder(*inputs).equal(other(*inputs))

    def test_embeds_its_last_activations(self, name: str, arguments: dict[str, Any]) -> None:
        encoder = new_encoder(name, arguments)
        features, mask = new_inputs(encoder, images=1)
        vectors = encoder(features, mask)
        if vectors.ndim == 2:
            activations = encoder.last_activations(
                RegionBatch(features, mask, cell_boxes(2, 4).unsqueeze(0))
            )
            assert activations.boxes.shape == (len(activations.cells), 4)
            torch.testing.assert_close(activations.embed(activations.cells), vectors[0])

    def test_has_its_own_localizer_or_none(self, name: str, arguments: dict[str, Any]) -> None:
        assert isinstance(new_encoder(name, arguments).localizer(), Localizer | None)

    def test_embeds_pixels_only_if_it_reads_them(
        self, name: str, arguments: dict[str, Any]
    ) -> None:
        encoder = new_encoder(name, arguments)
        features, mask = new_inputs(encoder, images=2)
        if encoder.reads_pixels:
            full = torch.ones_like(mask)
            torch.testing.assert_close(encoder.embed_pixels(features), encoder(features, full))
        else:
            with pytest.raises(TypeError, match="reads stored features, not pixels"):
                encoder.embed_pixels(features)


def test_all_image_encoders_of_one_vector_export_with_dynamic_batch_and_regions(
    tmp_path: Path,
) -> None:
    axes = {"features": ["batch", "regions", ""], "mask": ["batch", "regions"]}
    recipe = [
        (name, {"input_dim": INPUT_DIM, "dim": DIM, **arguments}, ("features", "mask"))
        for name, arguments in CASES
        if not arguments.get("backbone") and name != "MultiLevelEncoder"
    ]
    inputs = dict(zip(axes, new_inputs(new_encoder("LinearEncoder", {})), strict=True))
    file = tmp_path / "encoders.onnx"
    run_in_fresh_process(export, PACKAGE, recipe, inputs, axes, file)
    for value in onnx.load(file).graph.input:
        assert [dim.dim_param for dim in value.type.tensor_type.shape.dim] == axes[value.name]
    for images, padding in ((1, 0), (2, 5), (5, 12)):
        inputs = dict(
            zip(axes, new_inputs(new_encoder("LinearEncoder", {}), images, padding), strict=True)
        )
        assert_parity(PACKAGE, recipe, inputs, file)
