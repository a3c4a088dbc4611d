"""Export of a feature store's backbone: an ONNX graph from pixels to region features."""

import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bifocal.backbones.state import WEIGHTS_FILE, load_weights_file
from bifocal.datasets.resizing import DECODED_SCALE
from bifocal.export.cached import export_once, file_digest
from bifocal.export.graphs.parity import Parity, compare_graph
from bifocal.export.graphs.write import write_graph
from bifocal.features import FeatureStore
from bifocal.features.base import GridExtractor
from bifocal.image_encoders.base import ImageEncoder
from bifocal.ranking_heads.backbones.base import RankingBackbone
from bifocal.registry import build

GRAPH, PREPROCESSING = "backbone.onnx", "preprocessing.json"


def export_images(
    features: Path, folder: Path, encoder: ImageEncoder | RankingBackbone | None, seed: int
) -> list[Parity]:
    """Write how an encoder reads images, with ``backbone.onnx`` if one graph can compute the features; check parity."""
    parities: list[Parity] = []
    if exportable_extractor(features) is not None:
        export_backbone(features, folder)
        parities += compare_backbone(features, folder / GRAPH, seed)
    preprocessing = FeatureStore(features).metadata.get("preprocessing", {})
    resize = preprocessing.get("resize")
    if encoder is None or resize is None:
        return parities
    if keeps_pixels(encoder, resize, preprocessing["size"]):
        write_preprocessing(features, folder)
    elif resize == "limit" and encoder.stretched_side is not None:
        write_preprocessing(features, folder, encoder.stretched_side)
    return parities


def keeps_pixels(encoder: ImageEncoder | RankingBackbone, resize: str, size: int) -> bool:
    """Return whether an encoder reads pixels, and keeps images that were resized to ``size`` pixels."""
    if resize == "aspect":
        return isinstance(encoder, ImageEncoder) and encoder.keeps_any_size
    return resize == "square" and encoder.keeps_square(size)


def exportable_extractor(features: Path) -> GridExtractor | None:
    """Return a store's extractor with weights; None for published features, proposals, pixels, kept aspect ratios."""
    metadata = FeatureStore(features).metadata
    one_size = metadata.get("preprocessing", {}).get("resize") in ("square", "crop")
    if not one_size or "arguments" not in metadata or not (features / WEIGHTS_FILE).is_file():
        return None
    extractor = build("bifocal.features.extractors", {"name": metadata["extractor"], **metadata["arguments"]})
    if not isinstance(extractor, GridExtractor):
        return None
    load_weights_file(extractor.backbone, features / WEIGHTS_FILE)
    return extractor


def export_backbone(features: Path, folder: Path) -> None:
    """Write ``backbone.onnx``, from ``pixels`` (batch, 3, size, size) uint8 to ``features`` (batch, R, D) float32, and
    ``preprocessing.json``. The user's cache keeps the graph.
    """
    metadata = FeatureStore(features).metadata
    extractor = [metadata[name] for name in ("extractor", "arguments", "preprocessing")]
    export_once([*extractor, file_digest(features / WEIGHTS_FILE)], folder / GRAPH, _export, features)
    (pixels,) = onnx.load(folder / GRAPH).graph.input
    batch = pixels.type.tensor_type.shape.dim[0]
    if not batch.dim_param:
        raise ValueError(f"{GRAPH}: the batch has become {batch.dim_value}, expected a dynamic dimension")
    write_preprocessing(features, folder)


def write_preprocessing(features: Path, folder: Path, stretched_side: int | None = None) -> None:
    """Write ``preprocessing.json``: size in pixels, interpolation, decoded side, crop and resizing."""
    preprocessing = FeatureStore(features).metadata["preprocessing"]
    # Without a crop, "scaled" is missing.
    content = {name: preprocessing[name] for name in ("size", "interpolation", "scaled") if name in preprocessing}
    if preprocessing["resize"] == "aspect":
        content["resize"] = "aspect"
    content["decoded_side"] = DECODED_SCALE * content.get("scaled", content["size"])
    if stretched_side is not None:
        content = {"size": stretched_side, "interpolation": "bilinear"}
    (folder / PREPROCESSING).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def compare_backbone(features: Path, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported backbone with torch on random images; differences are relative to the largest feature."""
    module, size = _load_module(features)
    generator = torch.Generator().manual_seed(seed)

    def example(batch: int, length: int) -> tuple[Tensor]:
        return (torch.randint(0, 256, (batch, 3, size, size), generator=generator, dtype=torch.uint8),)

    return compare_graph("backbone", file, module, example, lengths=(1,))


class _Cells(nn.Module):
    def __init__(self, extractor: GridExtractor) -> None:
        super().__init__()
        self.network, self.extractor = extractor.backbone.network, extractor

    def forward(self, pixels: Tensor) -> Tensor:
        return self.extractor.cells(pixels)[0]


def _load_module(features: Path) -> tuple[nn.Module, int]:
    """Return the module to export, and the side of its images in pixels."""
    extractor = exportable_extractor(features)
    if extractor is None:
        raise ValueError(f"{features}: no graph computes these features; see exportable_extractor()")
    size: int = extractor.describe()["preprocessing"]["size"]
    return _Cells(extractor).eval(), size


def _export(features: Path, file: Path) -> None:
    module, size = _load_module(features)
    pixels = torch.zeros(3, 3, size, size, dtype=torch.uint8)
    write_graph(module, [pixels], {"pixels": ("batch", 3, size, size)}, ["features"], file)
