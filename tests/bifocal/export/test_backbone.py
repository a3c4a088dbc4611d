"""Exported backbone: its features equal extract_features', for any batch size, from an image
file."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from bifocal.backbones.state import WEIGHTS_FILE
from bifocal.export.backbone import (
    PREPROCESSING,
    compare_backbone,
    export_backbone,
    exportable_extractor,
)
from bifocal.export.extraction import GRAPH
from bifocal.features import FeatureWriter
from bifocal.features.base import GridExtractor
from bifocal.onnx.images import open_image
from bifocal.onnx.pixels import read_pixels
from bifocal.registry import build

NETWORK = {
    "backbone": "resnet10t",
    "model_arguments": {"channels": [8, 16, 16, 16], "stem_width": 8},
    "size": 64,
}
VIT_ARGUMENTS = {"img_size": 64, "embed_dim": 16, "num_heads": 2, "depth": 2}
VIT = {"backbone": "test_vit2", "size": 64, "model_arguments": VIT_ARGUMENTS}
GRID = {"stage": 3, "coordinates": True, **NETWORK}
LAYERS = {"layers": ["layer3", "layer4"], "power": 0.5, "classes": True, "mirror": True, **NETWORK}
EXTRACTORS = [
    ("Grid", {**VIT, "resize": "crop"}),
    pytest.param("Grid", GRID, marks=pytest.mark.slow),
    pytest.param("Hypercolumns", LAYERS, marks=pytest.mark.slow),
]


def make_store(folder: Path, name: str, arguments: Mapping[str, Any]) -> GridExtractor:
    """Write a feature store of one image with the backbone's weights, like extract_features; return
    the extractor."""
    torch.manual_seed(5)
    extractor: GridExtractor = build("bifocal.features.extractors", {"name": name, **arguments})
    metadata = {"extractor": name, "arguments": dict(arguments), **extractor.describe()}
    with FeatureWriter(
        folder, regions=extractor.regions, dim=extractor.dim, metadata=metadata, images_per_file=2
    ) as writer:
        writer.add("a", np.zeros((extractor.regions, extractor.dim), np.float32), None, None)
    save_file(
        {key: value.contiguous() for key, value in extractor.backbone.network.state_dict().items()},
        folder / WEIGHTS_FILE,
    )
    return extractor


@pytest.mark.parametrize(("name", "arguments"), EXTRACTORS)
def test_exported_backbone_gives_features_of_extraction(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    features, onnx = tmp_path / "features", tmp_path / "onnx"
    features.mkdir()
    onnx.mkdir()
    extractor = make_store(features, name, arguments)
    export_backbone(features, onnx)
    assert (
        b"site-packages" not in (onnx / GRAPH).read_bytes()
    )  # stack traces hold paths of this machine
    parities = list(compare_backbone(features, onnx / GRAPH, seed=3))
    assert [parity.batch for parity in parities] == [1, 2, 5]
    assert max(parity.difference for parity in parities) < 1e-5

    generator = np.random.default_rng(1)
    Image.fromarray(generator.integers(0, 256, (290, 330, 3), dtype=np.uint8)).save(
        tmp_path / "image.jpg"
    )
    with torch.inference_mode():
        image = open_image(tmp_path / "image.jpg", side=extractor.decoded_side)
        assert image.size == (165, 145)
        (expected,) = extractor.extract([extractor.preprocess(image)])
    encoded = base64.b64encode((tmp_path / "image.jpg").read_bytes()).decode()
    preprocessing = json.loads((onnx / PREPROCESSING).read_text())
    pixels = read_pixels(encoded, **preprocessing)
    session = onnxruntime.InferenceSession(onnx / GRAPH)
    actual = session.run(None, {"pixels": pixels[None]})[0][0]
    np.testing.assert_allclose(
        actual, expected.features.numpy(), atol=1e-5 * float(expected.features.abs().max())
    )


@pytest.mark.parametrize(
    "change",
    [{"resize": "aspect"}, {"no weights": True}],
    ids=["images of other sizes", "no weights"],
)
def test_exportable_extractor_is_none_for_unsupported_features(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    resize = {key: value for key, value in change.items() if key == "resize"}
    make_store(tmp_path, "Grid", {**GRID, **resize})
    if "no weights" in change:
        (tmp_path / WEIGHTS_FILE).unlink()
    assert exportable_extractor(tmp_path) is None
