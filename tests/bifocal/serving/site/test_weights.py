"""Graphs whose weights are stored as int8: small, and near the graphs of float32."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bifocal.onnx.sessions import open_session, run_graph
from bifocal.serving.site.weights import quantize_weights

RANDOM = np.random.default_rng(0)
FACTORS = np.logspace(-3, 2, 48, dtype=np.float32)
"""Sizes of the weights of each output: one scale for all would lose the small ones."""


def write_graph(file: Path, last: str) -> None:
    """Write an embedding table, a matrix product, an LSTM and a layer of one of two kinds."""
    nodes = [
        helper.make_node("Gather", ["table", "values"], ["words"]),
        helper.make_node("MatMul", ["words", "product"], ["hidden"]),
        helper.make_node("LSTM", ["hidden", "input", "recurrent"], ["", "state"], hidden_size=16),
        helper.make_node("Squeeze", ["state", "axes"], ["sentence"]),
        helper.make_node("Gemm", ["sentence", "layer", "bias"], ["output"], transB=1)
        if last == "Gemm"
        else helper.make_node("MatMul", ["sentence", "layer"], ["output"]),
    ]
    shapes = {
        "table": (300, 64), "product": (64, 32), "input": (1, 64, 32), "recurrent": (1, 64, 16),
    }  # fmt: skip
    weights = {name: RANDOM.normal(size=shape).astype(np.float32) / 4 for name, shape in shapes.items()}
    weights["layer"] = RANDOM.normal(size=(480, 16)).astype(np.float32) * np.tile(FACTORS, 10)[:, None]
    weights["bias"] = np.zeros(480, np.float32)
    if last == "MatMul":
        weights["layer"] = np.ascontiguousarray(weights["layer"].T)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    tensors.append(numpy_helper.from_array(np.array([0]), "axes"))
    inputs = [helper.make_tensor_value_info("values", TensorProto.INT64, ["time", "batch"])]
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "made", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)


@pytest.mark.parametrize("last", ["Gemm", "MatMul"])
def test_each_output_is_near_that_of_float32(last: str, tmp_path: Path) -> None:
    file = tmp_path / "graph.onnx"
    write_graph(file, last)
    size, sentences = file.stat().st_size, RANDOM.integers(0, 300, (7, 40))
    (expected,) = run_graph(open_session(file), [sentences])
    quantize_weights(file, file)
    assert file.stat().st_size < 0.3 * size
    session = open_session(file)
    assert session.get_inputs()[0].shape == ["time", "batch"]
    (found,) = run_graph(session, [sentences])
    assert not np.array_equal(found, expected)
    error = np.linalg.norm(found - expected, axis=0) / np.linalg.norm(expected, axis=0)
    assert np.median(error) < 0.03
    assert error.max() < 0.3  # with one scale for all outputs, the small ones would be lost
