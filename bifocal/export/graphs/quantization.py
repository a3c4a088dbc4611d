"""Exported graphs with weights of 8 bits."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

from bifocal.onnx.int8 import FLOAT, store_as_int8


def quantize_graph(file: Path) -> None:
    """Replace a graph by one with int8 weights.

    Matrix products, LSTMs and tables of embeddings are quantized dynamically: the range of each
    activation is measured in each call, as onnxruntime advises for transformers and recurrent
    networks. The weights have 7 bits, because 8 bits saturate on processors without VNNI. The
    weights of convolutions have 8 bits and are converted to float32 when the graph is loaded:
    static quantization of activations would need images for its calibration, and dynamic
    convolutions are slower than float32 convolutions. GRUs stay float32.
    """
    from onnxruntime.quantization import (
        QuantType,
        quantize_dynamic,
    )  # imported here: it takes seconds

    with TemporaryDirectory() as folder:
        plain = Path(folder) / file.name
        model = onnx.load(file)
        # quantize_dynamic transposes weights, and the shapes that the exporter noted for them would
        # contradict it.
        del model.graph.value_info[:]
        onnx.save(model, plain)
        logging.disable(logging.WARNING)  # it advises a step that the exporter has done
        try:
            quantize_dynamic(
                plain,
                file,
                op_types_to_quantize=["MatMul", "LSTM", "Gather"],
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
            )
        finally:
            logging.disable(logging.NOTSET)
    model = onnx.load(file)
    constants = {tensor.name for tensor in model.graph.initializer if tensor.data_type == FLOAT}
    convolutions = {node.input[1] for node in model.graph.node if node.op_type == "Conv"}
    store_as_int8(
        model.graph, dict.fromkeys(sorted(convolutions & constants), 0)
    )  # axis of the output channels
    onnx.save(model, file)
