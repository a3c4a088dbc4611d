"""ONNX: from the pixels of an image to the features of its regions, for kinds whose regions are the cells of a map."""

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from bifocal.backbones.state import CARRIED, load_safetensors
from bifocal.features import FeatureStore
from bifocal.features.base import GridExtractor
from bifocal.registry import build

GRAPH, PREPROCESSING = "backbone.onnx", "preprocessing.json"


def backbone_of(features: Path) -> GridExtractor | None:
    """What made a store of features, with its weights; None where one graph cannot do that.

    That is: features that somebody else made, proposals, pixels as such, and images of other sizes than a square.
    """
    metadata = FeatureStore(features).metadata
    square = metadata.get("preprocessing", {}).get("resize") == "square"
    if not square or "arguments" not in metadata or not (features / CARRIED).is_file():
        return None
    kind = build("bifocal.features.extractors", metadata["kind"], **metadata["arguments"])
    if not isinstance(kind, GridExtractor):
        return None
    load_safetensors(kind.backbone.network, features / CARRIED, kind.backbone.head)
    return kind


def export_backbone(features: Path, folder: Path) -> None:
    """Write ``backbone.onnx`` and, for whoever feeds it, ``preprocessing.json``.

    Input: ``pixels`` (batch, 3, size, size) uint8, RGB, resized as in extraction. Output: ``features`` (batch, R, D)
    float32; the store keeps them as float16.

    Raises:
        ValueError: the graph has lost the dynamic batch, or there is none to be made of these features.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as process:
        process.submit(_export, features, folder / GRAPH).result()
    (pixels,) = onnx.load(folder / GRAPH).graph.input
    batch = pixels.type.tensor_type.shape.dim[0]
    if not batch.dim_param:
        raise ValueError(f"{GRAPH}: the batch has become {batch.dim_value}, expected a dynamic dimension")
    write_preprocessing(features, folder)


def write_preprocessing(features: Path, folder: Path) -> None:
    """Write ``preprocessing.json``: the side of the square that images are resized to, pixels, and how."""
    preprocessing = FeatureStore(features).metadata["preprocessing"]
    given = {name: preprocessing[name] for name in ("size", "interpolation")}
    (folder / PREPROCESSING).write_text(json.dumps(given, indent=2, sort_keys=True) + "\n")


def compare_backbone(features: Path, file: Path, seed: int) -> Iterator[tuple[int, float]]:
    """Batch size and greatest difference from torch in any feature, relative to the greatest of them."""
    module, size = _module(features)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(seed)
    for batch in (1, 2, 5):
        pixels = torch.randint(0, 256, (batch, 3, size, size), generator=generator, dtype=torch.uint8)
        with torch.inference_mode():
            expected = module(pixels).numpy()
        found = session.run(None, {"pixels": pixels.numpy()})[0]
        scale = max(float(np.abs(expected).max()), 1e-12)
        yield batch, float(np.abs(found - expected).max()) / scale if np.isfinite(found).all() else float("inf")


class _Cells(nn.Module):
    def __init__(self, kind: GridExtractor) -> None:
        super().__init__()
        self.network, self.kind = kind.backbone.network, kind

    def forward(self, pixels: Tensor) -> Tensor:
        return self.kind.cells(pixels)[0]


def _module(features: Path) -> tuple[nn.Module, int]:
    kind = backbone_of(features)
    if kind is None:
        raise ValueError(f"{features}: no graph makes these features; backbone_of() says so first")
    size: int = kind.describe()["preprocessing"]["size"]
    return _Cells(kind).eval(), size


def _export(features: Path, file: Path) -> None:
    module, size = _module(features)
    program = torch.onnx.export(
        module,
        (torch.zeros(3, 3, size, size, dtype=torch.uint8),),
        input_names=["pixels"],
        output_names=["features"],
        dynamic_shapes=[{0: torch.export.Dim("batch")}],
        dynamo=True,
        verbose=False,
    )
    assert program is not None  # what torch.onnx.export gives with dynamo
    program.save(file, external_data=False)
