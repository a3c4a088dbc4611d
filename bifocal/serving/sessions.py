"""ONNX graphs in onnxruntime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]


def open_session(file: Path) -> onnxruntime.InferenceSession:
    """Load a graph, on a GPU if onnxruntime has one."""
    available = onnxruntime.get_available_providers()
    providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
    return onnxruntime.InferenceSession(file, providers=providers)


def run_graph(session: onnxruntime.InferenceSession, arrays: Sequence[Array]) -> list[Array]:
    """Return the outputs of a graph; ``arrays`` are its inputs in their order."""
    names = (value.name for value in session.get_inputs())
    outputs: list[Array] = session.run(None, dict(zip(names, arrays, strict=True)))
    return outputs
