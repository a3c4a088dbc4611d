"""Export of a feature store's backbone: an ONNX graph from pixels to region features."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from bifocal.backbones.state import WEIGHTS_FILE
from bifocal.durable import write_json
from bifocal.export.extraction import GRAPH, cells_module, extractor_of, write_backbone
from bifocal.export.graphs.parity import Parity, compare_graph
from bifocal.features import FeatureStore
from bifocal.features.base import GridExtractor
from bifocal.onnx.pixels import DECODED_SCALE

PREPROCESSING = "preprocessing.json"


class PixelReader(Protocol):
    """An image encoder, or the backbone of a ranking head, and how it reads pixels if it does."""

    @property
    def keeps_any_size(self) -> bool: ...
    @property
    def stretched_side(self) -> int | None: ...
    def keeps_square(self, size: int) -> bool: ...


def export_images(
    features: Path, folder: Path, encoder: PixelReader | None, seed: int
) -> list[Parity]:
    """Write how an encoder reads images, with ``backbone.onnx`` if one graph can compute the
    features; check parity."""
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


def keeps_pixels(encoder: PixelReader, resize: str, size: int) -> bool:
    """Return whether an encoder reads pixels, and keeps images that were resized to ``size``
    pixels."""
    if resize == "aspect":
        return encoder.keeps_any_size
    return resize == "square" and encoder.keeps_square(size)


def exportable_extractor(features: Path) -> GridExtractor | None:
    """Return a store's extractor with weights; None for published features, proposals, pixels, kept
    aspect ratios."""
    return extractor_of(FeatureStore(features).metadata, features / WEIGHTS_FILE)


def export_backbone(features: Path, folder: Path) -> None:
    """Write ``backbone.onnx``, from ``pixels`` (batch, 3, size, size) uint8 to ``features`` (batch,
    R, D) float32, and ``preprocessing.json``. The user's cache keeps the graph.
    """
    write_backbone(FeatureStore(features).metadata, features / WEIGHTS_FILE, folder)
    write_preprocessing(features, folder)


def write_preprocessing(features: Path, folder: Path, stretched_side: int | None = None) -> None:
    """Write ``preprocessing.json``: size in pixels, interpolation, decoded side, crop and
    resizing."""
    preprocessing = FeatureStore(features).metadata["preprocessing"]
    # Without a crop, "scaled" is missing.
    content = {
        name: preprocessing[name]
        for name in ("size", "interpolation", "scaled")
        if name in preprocessing
    }
    if preprocessing["resize"] == "aspect":
        content["resize"] = "aspect"
    content["decoded_side"] = DECODED_SCALE * content.get("scaled", content["size"])
    if stretched_side is not None:
        content = {"size": stretched_side, "interpolation": "bilinear"}
    write_json(folder / PREPROCESSING, content)


def compare_backbone(features: Path, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported backbone with torch on random images; differences are relative to the
    largest feature."""
    module, size = cells_module(FeatureStore(features).metadata, features / WEIGHTS_FILE)
    generator = torch.Generator().manual_seed(seed)

    def example(batch: int, length: int) -> tuple[Tensor]:
        return (
            torch.randint(0, 256, (batch, 3, size, size), generator=generator, dtype=torch.uint8),
        )

    return compare_graph("backbone", file, module, example, lengths=(1,))
