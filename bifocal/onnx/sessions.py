"""ONNX graphs in onnxruntime."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]
REGIONS = "regions"
"""Output of an image encoder for its localizer: the vectors (B, R, d) of the regions in the joint
space."""


def open_session(file: Path, threads: int = 0) -> onnxruntime.InferenceSession:
    """Load a graph, on a GPU if onnxruntime has one; ``ValueError`` if the file is damaged."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or default_threads()
    # Weights that are stored as int8 become float32 once, when the graph is loaded.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    # Otherwise, waiting threads keep a core busy for 4 ms after each run.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    available = onnxruntime.get_available_providers()
    providers = [
        name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available
    ]
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; export the model again")
    try:
        return onnxruntime.InferenceSession(file, options, providers=providers)
    except Exception as error:  # onnxruntime has no class of its own for all of them
        raise ValueError(
            f"{file} is not a complete ONNX graph: copy it or export the model again"
        ) from error


def default_threads() -> int:
    """Return ``OMP_NUM_THREADS``, which Spark sets and onnxruntime does not read, or 0 for one
    thread per core."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdecimal() else 0


def run_graph(
    session: onnxruntime.InferenceSession,
    arrays: Sequence[Array],
    output: str | Sequence[str] | None = None,
) -> list[Array]:
    """Return the named outputs of a graph, by default all except ``REGIONS``; nothing else is
    computed."""
    inputs = session.get_inputs()
    feeds = {
        value.name: array.astype(np.int32) if value.type == "tensor(int32)" else array
        for value, array in zip(inputs, arrays, strict=True)
    }
    options = onnxruntime.RunOptions()
    options.only_execute_path_to_fetches = True
    if output is None:
        wanted = [value.name for value in session.get_outputs() if value.name != REGIONS]
    else:
        wanted = [output] if isinstance(output, str) else list(output)
    if inputs[0].shape[:1] == [1] and len(arrays[0]) > 1:  # a graph for one image or one sentence
        rows = [
            {name: array[row : row + 1] for name, array in feeds.items()}
            for row in range(len(arrays[0]))
        ]
        parts = [session.run(wanted, row, options) for row in rows]
        return [np.concatenate(found) for found in zip(*parts, strict=True)]
    outputs: list[Array] = session.run(wanted, feeds, options)
    return outputs
