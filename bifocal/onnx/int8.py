"""Weights stored as int8, with a scale for each row."""

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

FLOAT = onnx.TensorProto.FLOAT


def quantize_rows(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return int8 weights and the scale of each first index: scale x int8 is near the weights."""
    largest = np.abs(weights).reshape(len(weights), -1).max(axis=1)
    scales = (np.where(largest > 0, largest, 1.0) / 127).astype(np.float32)
    rounded = np.round(weights / scales.reshape(-1, *[1] * (weights.ndim - 1)))
    return rounded.astype(np.int8), scales


def store_as_int8(graph: onnx.GraphProto, axes: Mapping[str, int]) -> None:
    """Store weights as int8 before a DequantizeLinear each; every index of a weight's axis has its
    own scale."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for name, axis in axes.items():
        values, scales = quantize_rows(np.moveaxis(numpy_helper.to_array(constants[name]), axis, 0))
        stored = (
            (np.ascontiguousarray(np.moveaxis(values, 0, axis)), f"{name}_int8"),
            (scales, f"{name}_scale"),
        )
        graph.initializer.remove(constants[name])
        graph.initializer.extend([numpy_helper.from_array(*tensor) for tensor in stored])
        names = [tensor_name for _, tensor_name in stored]
        nodes.append(
            onnx.helper.make_node("DequantizeLinear", names, [name], f"{name}_float", axis=axis)
        )
    ordered = [*nodes, *graph.node]
    del graph.node[:]
    graph.node.extend(ordered)
