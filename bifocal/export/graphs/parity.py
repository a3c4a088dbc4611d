"""Comparison of exported encoders with torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.export.encoders import Branch, branch_module, example_inputs
from bifocal.models import GroundingModel, load_model

BATCHES, LENGTHS = (1, 2, 5), (1, 3, 20)
WORDS = ("a", "dog", "runs", "on", "the", "grass", "t-shirt", "café", "犬")


@dataclass(frozen=True)
class Parity:
    """Largest difference between a graph and torch for one batch size and length; relative for
    values above 1."""

    branch: str
    batch: int
    length: int
    difference: float


def compare_encoder(
    model_directory: Path, branch: Branch, file: Path, seed: int, localizer: Any = None
) -> Iterator[Parity]:
    """Compare an exported graph of a model with torch on random inputs of several batch sizes and
    lengths."""
    model = load_model(model_directory)

    def scores(cells: Tensor, sentences: Tensor, words: Tensor) -> Tensor:
        # Not the exported module, which is another implementation of the same equations.
        return cast(GroundingModel, model).score(cells, (sentences, words)).cross

    def example(batch: int, length: int) -> tuple[Tensor, ...]:
        return example_inputs(model, branch, batch, length, seed)

    expected = scores if branch == "scores" else branch_module(model, branch, localizer)
    # Embeddings have unit norm; the scores of a late-interaction model and the vectors of regions
    # do not.
    return compare_graph(branch, file, expected, example, min_scale=1.0)


def compare_graph(
    branch: str,
    file: Path,
    expected: Callable[..., Tensor | tuple[Tensor, ...]],
    example: Callable[[int, int], Sequence[Tensor]],
    *,
    lengths: Sequence[int] = LENGTHS,
    min_scale: float = 1e-12,
) -> Iterator[Parity]:
    """Compare a graph with ``expected`` on ``example(batch, length)``, relative to the largest
    value of each output."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for batch in BATCHES:
        for length in lengths:
            inputs = example(batch, length)
            with torch.inference_mode():
                values = expected(*inputs)
            outputs = session.run(
                None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
            )
            pairs = zip(outputs, (values,) if isinstance(values, Tensor) else values, strict=True)
            differences = [
                relative_difference(output, value.numpy(), min_scale) for output, value in pairs
            ]
            yield Parity(branch, batch, length, max(differences))


def random_sentences(seed: int) -> Iterator[tuple[int, int, list[list[str]]]]:
    """Yield several batch sizes, lengths, and sentences of up to this length, the first of just
    this length."""
    generator = np.random.default_rng(seed)
    for batch, length in product(BATCHES, LENGTHS):
        lengths = [length, *generator.integers(1, length + 1, size=batch - 1)]
        yield batch, length, [list(generator.choice(WORDS, count)) for count in lengths]


def check_parity(parities: Sequence[Parity], folder: Path, tolerance: float) -> float:
    """Write ``parity.csv``, and return the largest difference; raise ``ValueError`` above
    ``tolerance``."""
    file = folder / "parity.csv"
    # Rounded: the last digits differ between machines, and the hash of the model must not.
    rows = [
        asdict(parity) | {"difference": max(float(f"{parity.difference:.0e}"), tolerance / 10)}
        for parity in parities
    ]
    pd.DataFrame(rows).to_csv(file, index=False)
    worst = max(parities, key=lambda parity: parity.difference)
    if worst.difference > tolerance:
        raise ValueError(
            f"{worst.branch}.onnx differs from torch by {worst.difference:.1e} at batch "
            f"{worst.batch}, length {worst.length}; the tolerance is {tolerance:.1e}: see "
            f"{file}"
        )
    return worst.difference


def relative_difference(
    output: NDArray[np.floating], expected: NDArray[np.floating], min_scale: float = 1e-12
) -> float:
    """Return the largest difference over the largest expected value; infinity if ``output`` is not
    finite."""
    # A comparison with NaN is never true: without this check NaN would pass every tolerance.
    difference = (
        float(np.abs(output - expected).max()) if np.isfinite(output).all() else float("inf")
    )
    return difference / max(float(np.abs(expected).max()), min_scale)
