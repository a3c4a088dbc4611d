"""Artifacts of an export with tiny graphs, for tests of the registered model."""

import base64
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper
from PIL import Image

from bifocal.durable import write_json
from bifocal.text import Vocabulary
from runtime import artifacts
from tests.bifocal.graphs import save_graph, tensor

WORDS = ["a", "dog", "runs"]
REPORT = {direction: {"R@1": 1.0} for direction in ("caption_retrieval", "image_retrieval")}


def graph(file: Path, inputs: list[tuple[str, int, int]]) -> None:
    """Write a graph that averages the first input over its second axis: (B, T) -> (B, 1), (B, R, D)
    -> (B, D)."""
    values = [tensor(name, rank, kind) for name, kind, rank in inputs]
    keep = inputs[0][2] == 2
    nodes = [
        helper.make_node("Cast", [inputs[0][0]], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers", "axes"], ["embedding"], keepdims=int(keep)),
        helper.make_node("Shape", [inputs[1][0]], ["unused"]),
    ]
    save_graph(file, nodes, values, [tensor("embedding", 2)], {"axes": [1]})


def backbone(file: Path, size: int) -> None:
    """Write a graph that returns one region per color channel: pixels (B, 3, size, size) -> (B, 3,
    size^2)."""
    pixels = tensor("pixels", [None, 3, size, size], TensorProto.UINT8)
    nodes = [
        helper.make_node("Cast", ["pixels"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["numbers", "shape"], ["features"]),
    ]
    save_graph(file, nodes, [pixels], [tensor("features", 3)], {"shape": [0, 3, -1]})
    write_json(file.with_name("preprocessing.json"), {"size": size, "interpolation": "bicubic"})


def encoded(pixels: NDArray[np.uint8]) -> str:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def make_artifacts(folder: Path) -> tuple[Path, Path]:
    """Write an onnx and a metrics artifact in the format of the previous stages."""
    partial = artifacts.open_partial(folder / "onnx", {})
    graph(
        partial / "text_encoder.onnx",
        [("values", TensorProto.INT64, 2), ("lengths", TensorProto.INT64, 1)],
    )
    graph(
        partial / "image_encoder.onnx",
        [("features", TensorProto.FLOAT, 3), ("mask", TensorProto.BOOL, 2)],
    )
    backbone(partial / "backbone.onnx", size=2)
    Vocabulary(WORDS).save(partial / Vocabulary.FILE)
    artifacts.commit(partial, folder / "onnx", {"inputs": {}})
    partial = artifacts.open_partial(folder / "metrics", {})
    write_json(partial / "metrics.json", REPORT)
    (partial / "MODEL_CARD.md").write_text(
        "# A model\n\n## Data, parameters and lineage\n\n- code: c0de\n"
    )
    artifacts.commit(
        partial,
        folder / "metrics",
        {"inputs": {"dataset": 2 * 32 * "a"}, "metrics": {"R@1": 0.5, "R@5": None}},
    )
    return folder / "onnx", folder / "metrics"
