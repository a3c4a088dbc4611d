"""Graphs of int8: size, latency and recall beside graphs of float32."""

import json
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from bifocal.datasets import read_dataset
from bifocal.export import variants
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.text import Vocabulary, tokenize
from tests.bifocal.datasets.small import write_scenes
from tests.bifocal.graphs import save_graph, tensor
from tests.margins import beyond_chance

DIM = 48


def write_encoder(
    file: Path, inputs: dict[str, tuple[int, list[str | int]]], weights: np.ndarray, op: str
) -> None:
    """Write the unit vector of the mean row of the first input, through a table or a matrix."""
    values = [tensor(name, shape, kind) for name, (kind, shape) in inputs.items()]
    first, second = inputs
    arguments = ["weights", first] if op == "Gather" else [first, "weights"]
    nodes = [
        helper.make_node(op, arguments, ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axes"], ["sum"], keepdims=0),
        helper.make_node("LpNormalization", ["sum"], ["embeddings"], axis=1),
        helper.make_node("Shape", [second], ["unused"]),
    ]
    output = tensor("embeddings", ["batch", DIM])
    save_graph(file, nodes, values, [output], {"weights": weights, "axes": [1]})


@pytest.fixture
def exported(tmp_path: Path) -> dict[str, Path]:
    """Scenes whose features are the sums of their words, and graphs that map both to the same
    space."""
    paths = {name: tmp_path / name for name in ("dataset", "features", "onnx")}
    for path in paths.values():
        path.mkdir()
    write_scenes(paths["dataset"], 4, 24, 4)
    captions = read_dataset(paths["dataset"]).captions
    words = sorted({word for text in captions["text"] for word in tokenize(text)})
    table = np.random.default_rng(0).normal(size=(2 + len(words), DIM))
    table[0] = 0
    Vocabulary(words).save(paths["onnx"] / Vocabulary.FILE)
    row = {word: number + 2 for number, word in enumerate(words)}
    with FeatureWriter(
        paths["features"], regions=1, dim=DIM, metadata={}, images_per_file=64
    ) as writer:
        for image_id, own in captions.groupby("image_id"):
            seen = table[[row[word] for text in own["text"] for word in set(tokenize(text))]].sum(
                axis=0
            )
            writer.add(str(image_id), (seen / 10).astype(np.float32)[None])
    ids: dict[str, tuple[int, list[str | int]]] = {
        "values": (TensorProto.INT64, ["batch", "time"]),
        "lengths": (TensorProto.INT64, ["batch"]),
    }
    regions: dict[str, tuple[int, list[str | int]]] = {
        "features": (TensorProto.FLOAT, ["batch", "regions", DIM]),
        "mask": (TensorProto.BOOL, ["batch", "regions"]),
    }
    write_encoder(paths["onnx"] / "text_encoder.onnx", ids, table, "Gather")
    write_encoder(paths["onnx"] / "image_encoder.onnx", regions, np.eye(DIM), "MatMul")
    return paths


def quantized(exported: dict[str, Path], max_loss: float) -> dict[str, float]:
    split = read_dataset(exported["dataset"]).split("val")
    return variants.quantize_and_measure(
        exported["onnx"], split, FeatureStore(exported["features"]), max_loss
    )


def test_size_latency_and_recall_of_both_precisions_are_written(exported: dict[str, Path]) -> None:
    metrics = quantized(exported, 20.0)
    written = json.loads((exported["onnx"] / variants.QUANTIZATION).read_text())
    repeatable = {name: value for name, value in metrics.items() if not name.endswith("_ms")}
    assert pd.json_normalize(written).iloc[0].to_dict() == repeatable
    assert metrics["int8.megabytes"] < 0.6 * metrics["float32.megabytes"]
    assert metrics["float32.caption_recall"] > 100 * beyond_chance(24, 1 / 24)
    for direction in ("caption_recall", "image_recall"):
        assert metrics[f"int8.{direction}"] == pytest.approx(
            metrics[f"float32.{direction}"], abs=15.0
        )
    assert (
        min(metrics[f"{name}.{kind}_ms"] for name in written for kind in ("sentence", "image")) > 0
    )


def test_graphs_that_lose_recall_are_an_error(
    exported: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def destroy(file: Path) -> None:
        model = onnx.load(file)
        weights = next(tensor for tensor in model.graph.initializer if tensor.name == "weights")
        weights.CopyFrom(
            numpy_helper.from_array(np.ones_like(numpy_helper.to_array(weights)), "weights")
        )
        onnx.save(model, file)

    monkeypatch.setattr(variants, "quantize_graph", destroy)
    with pytest.raises(ValueError, match=r"lose .* points of R@1 .* set precision to float32"):
        quantized(exported, 1.0)
