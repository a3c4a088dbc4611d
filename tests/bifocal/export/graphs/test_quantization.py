"""Graphs of int8: near float32 graphs, smaller, and with the same dynamic dimensions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bifocal.export.graphs.quantization import quantize_graph
from bifocal.onnx.int8 import quantize_rows
from bifocal.onnx.sessions import open_session, run_graph

RANDOM = np.random.default_rng(0)


def write(
    file: Path,
    nodes: list[onnx.NodeProto],
    value: onnx.ValueInfoProto,
    **weights: NDArray[np.float32],
) -> None:
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "made", [value], [output], tensors)
    # The exporter notes the shapes of weights, too.
    graph.value_info.extend(
        helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in weights.items()
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file
    )


def text(file: Path) -> list[NDArray[np.int64]]:
    """Write a graph of a table of embeddings, a matrix product and a fully connected layer."""
    nodes = [
        helper.make_node("Gather", ["table", "values"], ["words"]),
        helper.make_node("MatMul", ["words", "product"], ["hidden"]),
        helper.make_node("ReduceMean", ["hidden", "axes"], ["sentence"], keepdims=0),
        helper.make_node("Gemm", ["sentence", "layer", "bias"], ["output"], transB=1),
    ]
    shapes = {"table": (300, 64), "product": (64, 96), "layer": (48, 96), "bias": (48,)}
    weights = {name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    write(
        file,
        nodes,
        helper.make_tensor_value_info("values", TensorProto.INT64, ["batch", "time"]),
        **weights,
    )
    model = onnx.load(file)
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    onnx.save(model, file)
    return [RANDOM.integers(0, 300, size) for size in ((1, 1), (3, 7))]


def image(file: Path) -> list[NDArray[np.float32]]:
    """Write a graph of two convolutions, whose channels have weights of different sizes."""
    nodes = [
        helper.make_node("Conv", ["pixels", "first"], ["hidden"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["hidden"], ["positive"]),
        helper.make_node("Conv", ["positive", "second", "bias"], ["output"]),
    ]
    shapes = {"first": (32, 3, 3, 3), "second": (40, 32, 3, 3), "bias": (40,)}
    weights = {name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    weights["second"] *= np.logspace(-3, 2, 40, dtype=np.float32)[:, None, None, None]
    value = helper.make_tensor_value_info(
        "pixels", TensorProto.FLOAT, ["batch", 3, "height", "width"]
    )
    write(file, nodes, value, **weights)
    return [RANDOM.random(size, dtype=np.float32) for size in ((1, 3, 8, 8), (2, 3, 5, 9))]


def recurrent(kind: str, file: Path) -> list[NDArray[np.floating]]:
    """Write a graph of one recurrent layer."""
    gates = {"LSTM": 4, "GRU": 3}[kind] * 24
    node = helper.make_node(kind, ["values", "input", "state"], ["all", "output"], hidden_size=24)
    shapes = {"input": (1, gates, 64), "state": (1, gates, 24)}
    value = helper.make_tensor_value_info("values", TensorProto.FLOAT, ["time", "batch", 64])
    weights = {name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    write(file, [node], value, **weights)
    return [RANDOM.random(size, dtype=np.float32) / 8 for size in ((1, 1, 64), (5, 4, 64))]


GRAPHS = [text, image, partial(recurrent, "LSTM"), partial(recurrent, "GRU")]


@pytest.mark.parametrize("make", GRAPHS)
def test_quantized_graph_is_smaller_and_near_the_float_graph(
    make: Callable[[Path], list[NDArray[Any]]], tmp_path: Path
) -> None:
    file = tmp_path / "graph.onnx"
    inputs = make(file)
    size, session = file.stat().st_size, open_session(file)
    expected = [run_graph(session, [array], "output")[0] for array in inputs]
    quantize_graph(file)
    assert file.stat().st_size < size / 3
    quantized = open_session(file)
    assert [value.shape for value in quantized.get_inputs()] == [
        value.shape for value in session.get_inputs()
    ]
    for array, reference in zip(inputs, expected, strict=True):
        (output,) = run_graph(quantized, [array], "output")
        assert not np.array_equal(output, reference)
        # Channels of an image one by one: one scale for all weights would lose the channels of
        # small weights.
        channels = range(reference.shape[1]) if make is image else [slice(None)]
        for channel in channels:
            error = np.linalg.norm(output[:, channel] - reference[:, channel])
            assert error < 0.1 * np.linalg.norm(reference[:, channel])


@pytest.mark.parametrize("make", GRAPHS)
def test_the_output_of_an_item_does_not_depend_on_its_batch(
    make: Callable[[Path], list[NDArray[Any]]], tmp_path: Path
) -> None:
    file = tmp_path / "graph.onnx"
    _, batch = make(file)
    quantize_graph(file)
    session, axis = open_session(file), int(not isinstance(make, FunctionType))
    together = run_graph(session, [batch], "output")[0]
    for item in range(batch.shape[axis]):
        (alone,) = run_graph(session, [batch.take([item], axis)], "output")
        assert alone.take(0, axis) == pytest.approx(together.take(item, axis), abs=1e-5, rel=1e-5)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 5), exponent=st.integers(-20, 20))
def test_rounding_is_at_most_half_a_step(seed: int, rows: int, exponent: int) -> None:
    weights = (np.random.default_rng(seed).normal(size=(rows, 3, 2)) * 2.0**exponent).astype(
        np.float32
    )
    weights[0] = 0
    values, scales = quantize_rows(weights)
    error = np.abs(values * scales[:, None, None] - weights)
    assert (error <= 0.5001 * scales[:, None, None]).all()
    assert np.abs(values).max() <= 127
    assert not values[0].any()
