"""The ONNX graph of an extractor of features, and extraction by ONNX Runtime: half of torch's time
on a CPU."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from bifocal.backbones.state import WEIGHTS_FILE, load_weights_file
from bifocal.durable import file_digest
from bifocal.durable.cached import write_cached
from bifocal.export.graphs.write import run_in_fresh_process, write_graph
from bifocal.features.base import FeatureSource, GridExtractor
from bifocal.features.extraction import NetworkFeatures
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.progress import log_line
from bifocal.registry import build

GRAPH = "backbone.onnx"
FEWEST = 300
"""Images of a dataset for which an export takes less time than it saves."""


def use_onnx(source: FeatureSource, metadata: Mapping[str, Any], folder: Path, images: int) -> None:
    """Let ONNX Runtime compute features, if torch would do so on a CPU, and one graph can.

    Args:
        source: of the features.
        metadata: of the feature store, from ``open_source``.
        folder: the feature directory, with the weights.
        images: number in the whole dataset, so that a resumed run and all shards make the same
            choice.
    """
    if images < FEWEST or torch.cuda.is_available() or not isinstance(source, NetworkFeatures):
        return
    extractor = extractor_of(metadata, folder / WEIGHTS_FILE)
    if extractor is None:
        return
    with TemporaryDirectory() as temporary:
        try:
            write_backbone(metadata, folder / WEIGHTS_FILE, Path(temporary))
        except Exception as error:  # the exporter raises errors of many classes
            log_line(f"torch computes the features, since their graph cannot be exported: {error}")
            return
        session = open_session(Path(temporary) / GRAPH, torch.get_num_threads())
    size = metadata["preprocessing"]["size"]
    with torch.inference_mode():
        boxes = extractor.cells(torch.zeros(1, 3, size, size, dtype=torch.uint8))[1]

    def cells(pixels: Tensor) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(run_graph(session, (pixels.numpy(),))[0]), boxes

    log_line("ONNX Runtime computes the features")
    source.graph_cells = cells


def extractor_of(metadata: Mapping[str, Any], weights: Path) -> GridExtractor | None:
    """Return the extractor of a store's metadata with the weights in a file, see
    ``exportable_extractor``; or None."""
    one_size = metadata.get("preprocessing", {}).get("resize") in ("square", "crop")
    if not one_size or "arguments" not in metadata or not weights.is_file():
        return None
    extractor = build(
        "bifocal.features.extractors", {"name": metadata["extractor"], **metadata["arguments"]}
    )
    if not isinstance(extractor, GridExtractor):
        return None
    load_weights_file(extractor.backbone, weights)
    return extractor


def write_backbone(metadata: Mapping[str, Any], weights: Path, folder: Path) -> None:
    """Write ``backbone.onnx`` of a store's metadata and a file of weights."""
    extractor = {name: metadata[name] for name in ("extractor", "arguments", "preprocessing")}
    key = [*extractor.values(), file_digest(weights)]
    write_cached(key, folder / GRAPH, run_in_fresh_process, _write, extractor, weights)
    (pixels,) = onnx.load(folder / GRAPH, load_external_data=False).graph.input
    batch = pixels.type.tensor_type.shape.dim[0]
    if not batch.dim_param:
        raise ValueError(
            f"{GRAPH}: the batch has become {batch.dim_value}, expected a dynamic dimension"
        )


class Cells(nn.Module):
    """An extractor from pixels to the features of the cells."""

    def __init__(self, extractor: GridExtractor) -> None:
        super().__init__()
        self.network, self.extractor = extractor.backbone.network, extractor

    def forward(self, pixels: Tensor) -> Tensor:
        return self.extractor.cells(pixels)[0]


def cells_module(metadata: Mapping[str, Any], weights: Path) -> tuple[nn.Module, int]:
    """Return the module to export, and the side of its images in pixels."""
    extractor = extractor_of(metadata, weights)
    if extractor is None:
        raise ValueError(
            f"{weights.parent}: no graph computes these features; see exportable_extractor()"
        )
    size: int = extractor.describe()["preprocessing"]["size"]
    return Cells(extractor).eval(), size


def _write(metadata: Mapping[str, Any], weights: Path, file: Path) -> None:
    module, size = cells_module(metadata, weights)
    pixels = torch.zeros(3, 3, size, size, dtype=torch.uint8)
    write_graph(module, [pixels], {"pixels": ("batch", 3, size, size)}, ["features"], file)
