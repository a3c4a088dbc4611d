"""Exported graphs with weights of 8 bits."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

FLOAT = onnx.TensorProto.FLOAT


def quantize_graph(file: Path) -> None:
    """Replace a graph by one with int8 weights.

    Matrix products, LSTMs and tables of embeddings are quantized dynamically: the range of each activation is measured
    in each call, as onnxruntime advises for transformers and recurrent networks. The weights have 7 bits, because 8
    bits saturate on processors without VNNI. The weights of convolutions have 8 bits and are converted to float32 when
    the graph is loaded: static quantization of activations would need images for its calibration, and dynamic
    convolutions are slower than those of float32. GRUs stay float32.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic  # imported here: it takes seconds

    with TemporaryDirectory() as folder:
        plain = Path(folder) / file.name
        model = onnx.load(file)
        # quantize_dynamic transposes weights, and the shapes that the exporter noted for them would contradict it.
        del model.graph.value_info[:]
        onnx.save(model, plain)
        quantize_dynamic(
            plain,
            file,
            op_types_to_quantize=["MatMul", "LSTM", "Gather"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
    model = onnx.load(file)
    _quantize_convolutions(model.graph)
    onnx.save(model, file)


def quantize_rows(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return int8 weights and the scale of each first index: scale x int8 is near the weights.

    >>> quantize_rows(np.array([[0.5, -1.27]], dtype=np.float32))[0].tolist()
    [[50, -127]]
    """
    largest = np.abs(weights).reshape(len(weights), -1).max(axis=1)
    scales = (np.where(largest > 0, largest, 1.0) / 127).astype(np.float32)
    rounded = np.round(weights / scales.reshape(-1, *[1] * (weights.ndim - 1)))
    return rounded.astype(np.int8), scales


def _quantize_convolutions(graph: onnx.GraphProto) -> None:
    """Store the weights of convolutions as int8, one scale per output channel, before a DequantizeLinear each."""
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == FLOAT}
    names = {node.input[1] for node in graph.node if node.op_type == "Conv"} & constants.keys()
    nodes = []
    for name in sorted(names):
        values, scales = quantize_rows(numpy_helper.to_array(constants[name]))
        graph.initializer.remove(constants[name])
        graph.initializer.extend(
            [
                numpy_helper.from_array(values, f"{name}_int8"),
                numpy_helper.from_array(scales, f"{name}_scale"),
            ]
        )
        stored = [f"{name}_int8", f"{name}_scale"]
        nodes.append(onnx.helper.make_node("DequantizeLinear", stored, [name], f"{name}_float", axis=0))
    ordered = [*nodes, *graph.node]
    del graph.node[:]
    graph.node.extend(ordered)
