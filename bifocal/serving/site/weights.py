"""Graphs whose weights are stored as int8."""

from pathlib import Path

import numpy as np
import onnx

from bifocal.onnx.int8 import FLOAT, store_as_int8

RECURRENT = ("GRU", "LSTM", "RNN")
SMALL = 1024
"""Numbers of a tensor below which int8 saves too little."""


def quantize_weights(source: Path, file: Path) -> None:
    """Write a graph with tables and matrices as int8, a scale per row, output or gate; it computes in float32."""
    model = onnx.load(source)
    store_as_int8(model.graph, _scaled_axes(model.graph))
    onnx.save(model, file)


def _scaled_axes(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the large weights, and the axis of each whose indices have a scale of their own."""
    axes: dict[str, int] = {}
    for node in graph.node:
        rows = node.op_type in ("Gather", "Conv") or any(item.name == "transB" and item.i for item in node.attribute)
        for name in node.input:
            axes[name] = 0 if rows else 1 if node.op_type in RECURRENT else axes.get(name, -1)
    return {
        tensor.name: axes.get(tensor.name, -1) % len(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == FLOAT and len(tensor.dims) > 1 and np.prod(tensor.dims) >= SMALL
    }
