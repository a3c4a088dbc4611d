"""Export of a model's localizer: how the scores of the regions are computed from the exported
graphs, without torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from bifocal.durable import write_json
from bifocal.export.backbone import PREPROCESSING, exportable_extractor
from bifocal.export.encoders import chosen_localizer
from bifocal.export.graphs.parity import Parity, relative_difference
from bifocal.features import RegionBatch
from bifocal.localization.base import Localizer
from bifocal.models import load_model
from bifocal.models.base import Model
from bifocal.onnx.encoders import ImageGraph
from bifocal.onnx.files import read_json
from bifocal.onnx.heatmaps import LOCALIZER, HeatmapModel, image_vectors

ENCODER, IMAGES = "image_encoder.onnx", 3
PATCHES = 5
"""Patches of one color along each side of a random image."""


def export_localizer(
    model_directory: Path, features: Path, folder: Path, localizer: Any = None
) -> None:
    """Write ``localizer.json`` after the graphs in ``folder``, if the model has a localizer and
    reads images."""
    model = load_model(model_directory)
    chosen = chosen_localizer(model, localizer)
    served = None if chosen is None else chosen.served()
    batch = None if served is None else _blank_image(model, features, folder)
    if chosen is None or served is None or batch is None:
        return
    with torch.inference_mode():
        boxes = chosen.encode(model.image_encoder, batch).boxes[0]
    content = {**served._asdict(), "arguments": dict(served.arguments), "boxes": boxes.tolist()}
    write_json(folder / LOCALIZER, content)


def compare_localizer(
    model_directory: Path, folder: Path, seed: int, localizer: Any = None
) -> Iterator[Parity]:
    """Compare the scores of an exported localizer with torch's on random images, relative to the
    largest score."""
    if not (folder / LOCALIZER).is_file():
        return
    model = load_model(model_directory)
    graph, chosen = ImageGraph(folder, ENCODER), chosen_localizer(model, localizer)
    assert chosen is not None
    exported = HeatmapModel(folder, graph)
    levels = 1 if model.image_encoder.reads_pixels else model.image_encoder.levels_per_image
    boxes = torch.from_numpy(exported.boxes).repeat(levels, 1)
    generator = torch.Generator().manual_seed(seed)
    texts = normalize(torch.randn(IMAGES, model.image_encoder.dim, generator=generator), dim=1)
    batch = _random_images(model, folder, boxes, generator)
    expected = _scores(chosen, model, batch, texts)
    vectors = image_vectors(graph, exported.vectors, list(batch.features.numpy()))
    scores = np.stack(
        [
            exported.scores(*pair, exported.boxes)
            for pair in zip(vectors, texts.numpy(), strict=True)
        ]
    )
    yield Parity(
        "localizer", IMAGES, scores.shape[1], relative_difference(scores, expected.numpy())
    )


def _scores(localizer: Localizer, model: Model, batch: RegionBatch, texts: Tensor) -> Tensor:
    with torch.inference_mode():
        return localizer(model.image_encoder, batch, texts).scores


def _blank_image(model: Model, features: Path, folder: Path) -> RegionBatch | None:
    """Return a gray image as the image encoder reads it; None if no graph reads images."""
    if model.image_encoder.reads_pixels:
        if not (folder / PREPROCESSING).is_file():
            return None
        side = read_json(folder / PREPROCESSING)["size"]
        mask = torch.ones(1, side, side, dtype=torch.bool)
        return RegionBatch(torch.full((1, 3, side, side), 128.0), mask, torch.zeros(0))
    extractor = exportable_extractor(features)
    if extractor is None:
        return None
    side = read_json(folder / PREPROCESSING)["size"]
    with torch.inference_mode():
        # Boxes relative to the square that the graph reads: a crop of the image, or all of it.
        cells, boxes = extractor.cells(torch.full((1, 3, side, side), 128, dtype=torch.uint8))
    mask = torch.ones(cells.shape[:2], dtype=torch.bool)
    return RegionBatch(cells.float(), mask, boxes.float().unsqueeze(0))


def _random_images(
    model: Model, folder: Path, boxes: Tensor, generator: torch.Generator
) -> RegionBatch:
    encoder = model.image_encoder
    if encoder.reads_pixels:
        side = read_json(folder / PREPROCESSING)["size"]
        # White noise would give nearly constant maps, and their standardized scores would be
        # rounding errors.
        pixels = interpolate(
            255 * torch.rand(IMAGES, 3, PATCHES, PATCHES, generator=generator), size=(side, side)
        )
        return RegionBatch(pixels, torch.ones(IMAGES, side, side, dtype=torch.bool), boxes)
    cells = torch.randn(IMAGES, len(boxes), encoder.input_dim, generator=generator)
    return RegionBatch(
        cells, torch.ones(cells.shape[:2], dtype=torch.bool), boxes.expand(IMAGES, -1, -1)
    )
