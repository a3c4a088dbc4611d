"""Small ONNX graphs that tests make by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper


def tensor(
    name: str, shape: int | Sequence[int | str | None] | None = None, kind: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    """Return an input or output of a shape, of a rank, or of any rank."""
    return helper.make_tensor_value_info(
        name, kind, [None] * shape if isinstance(shape, int) else shape
    )


def save_graph(
    file: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: dict[str, ArrayLike] | None = None,
) -> None:
    """Write a graph; whole numbers of its constants are int64, other ones float32."""
    arrays = {name: np.asarray(value) for name, value in (constants or {}).items()}
    values = [
        numpy_helper.from_array(
            array.astype(np.float32 if array.dtype.kind == "f" else np.int64), n
        )
        for n, array in arrays.items()
    ]
    made = helper.make_graph(nodes, "made", inputs, outputs, values)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=9), str(file))
