"""Exported graphs with weights of 8 bits."""

from pathlib import Path

import onnx

from bifocal.onnx.int8 import FLOAT, store_as_int8

SECOND, RECURRENT = (slice(1, 2), 0), (slice(1, 3), 1)
WEIGHTS = {
    "Conv": SECOND,
    "Gather": (slice(1), 0),
    "Gemm": SECOND,
    "GRU": RECURRENT,
    "LSTM": RECURRENT,
    "MatMul": (slice(2), -1),
}
"""Inputs of an operator that may be weights, and their axis whose indices have a scale each."""


def quantize_graph(file: Path) -> None:
    """Replace a graph by one with int8 weights, which become float32 when the graph is loaded.

    Activations stay float32: dynamic quantization takes their range over a batch, so the vector of
    an item would depend on the other items of its batch.
    """
    model = onnx.load(file)
    # The shapes that the exporter noted for weights would contradict the new ones.
    del model.graph.value_info[:]
    dims = {
        tensor.name: len(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_type == FLOAT and len(tensor.dims) > 1
    }
    axes: dict[str, int] = {}
    for node in model.graph.node:
        inputs, axis = WEIGHTS.get(node.op_type, (slice(0), 0))
        axes |= {name: axis % dims[name] for name in node.input[inputs] if name in dims}
    store_as_int8(model.graph, axes)
    onnx.save(model, file)
