"""Comparison of exported encoders with torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from bifocal.export.encoders import Branch, branch_module, example_inputs, load_two_branch

BATCHES, LENGTHS = (1, 2, 5), (1, 3, 20)


@dataclass(frozen=True)
class Parity:
    """One comparison of a graph with torch.

    Attributes:
        branch: name of the graph: a ``Branch``, or "backbone".
        batch: images or captions.
        length: regions or words.
        difference: largest absolute difference of any output value; of features, relative to the largest feature.
    """

    branch: str
    batch: int
    length: int
    difference: float


def compare_encoder(model_directory: Path, branch: Branch, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported encoder with torch on random inputs of several batch sizes and lengths."""
    model = load_two_branch(model_directory)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    module = branch_module(model, branch)
    for batch in BATCHES:
        for length in LENGTHS:
            inputs = example_inputs(model, branch, batch, length, seed)
            with torch.inference_mode():
                expected = module(*inputs).numpy()
            (output,) = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})
            yield Parity(branch, batch, length, max_difference(output, expected))


def max_difference(output: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    """Return the largest absolute difference; infinity if ``output`` has values that are not finite."""
    # A comparison with NaN is never true: without this check NaN would pass every tolerance.
    return float(np.abs(output - expected).max()) if np.isfinite(output).all() else float("inf")
