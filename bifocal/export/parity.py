"""Comparison of exported encoders with torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.export.encoders import Branch, branch_module, example_inputs
from bifocal.models import GroundingModel, load_model
from bifocal.models.base import Model

BATCHES, LENGTHS = (1, 2, 5), (1, 3, 20)


@dataclass(frozen=True)
class Parity:
    """Largest difference of a graph's outputs and torch's, for one batch size and length (regions or words).

    The differences of features, ELMo's layers, a localizer's scores and other values above 1 are relative to the
    largest.
    """

    branch: str
    batch: int
    length: int
    difference: float


def compare_encoder(
    model_directory: Path, branch: Branch, file: Path, seed: int, localizer: Any = None
) -> Iterator[Parity]:
    """Compare an exported graph of a model with torch on random inputs of several batch sizes and lengths."""
    model = load_model(model_directory)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for batch in BATCHES:
        for length in LENGTHS:
            inputs = example_inputs(model, branch, batch, length, seed)
            with torch.inference_mode():
                expected = [tensor.numpy() for tensor in _expected(model, branch, inputs, localizer)]
            outputs = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})
            differences = [max_difference(*pair) for pair in zip(outputs, expected, strict=True)]
            # Embeddings have unit norm; the scores of a late-interaction model and the vectors of regions do not.
            scales = [max(1.0, float(np.abs(values).max())) for values in expected]
            difference = max(value / scale for value, scale in zip(differences, scales, strict=True))
            yield Parity(branch, batch, length, difference)


def _expected(model: Model, branch: Branch, inputs: tuple[Tensor, ...], localizer: Any) -> tuple[Tensor, ...]:
    if branch == "scores":
        # Not the exported module, which is another implementation of the same equations.
        cells, sentences, words = inputs
        return (cast(GroundingModel, model).score(cells, (sentences, words)).cross,)
    outputs: Tensor | tuple[Tensor, ...] = branch_module(model, branch, localizer)(*inputs)
    return (outputs,) if isinstance(outputs, Tensor) else outputs


def max_difference(output: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    """Return the largest absolute difference; infinity if ``output`` has values that are not finite."""
    # A comparison with NaN is never true: without this check NaN would pass every tolerance.
    return float(np.abs(output - expected).max()) if np.isfinite(output).all() else float("inf")
