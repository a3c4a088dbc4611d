"""Export of ELMo: an ONNX graph from word symbols to token layers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from bifocal.export.graphs.parity import Parity, random_sentences, relative_difference
from bifocal.export.graphs.write import Shape, check_shapes, run_in_fresh_process, write_graph
from bifocal.text.elmo import Elmo
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.text.vectorizers.elmo_layers import ElmoLayers

GRAPH = "elmo.onnx"


class _Layers(nn.Module):
    """Layers (B, L, T, 2 P) of the tokens of each sentence, zero after its end."""

    def __init__(self, elmo: Elmo) -> None:
        super().__init__()
        self.elmo = elmo

    def forward(self, symbols: Tensor, words: Tensor, lengths: Tensor) -> Tensor:
        layers = [
            torch.cat((ahead, back), dim=2) for ahead, back in self.elmo(symbols, words, lengths)
        ]
        values = torch.stack(layers)[:, 1:-1].permute(2, 0, 1, 3)
        inside = torch.arange(values.shape[2]) < (lengths - 2).unsqueeze(1)
        return values * inside[:, None, :, None]


def export_elmo(text: Path, file: Path) -> None:
    """Write the network of ``ElmoLayers``: ``symbols`` (words, symbols of a word), ``words``
    (steps, batch) and ``lengths`` (batch,), int64, to ``values`` (batch, L, steps - 2, K) float32,
    zero after the ends of sentences.
    """
    run_in_fresh_process(_export, text, file)
    check_shapes(file, _shapes(_load(text)))


def compare_elmo(text: Path, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported ELMo with torch on random sentences; differences are relative to the
    largest value."""
    elmo = _load(text)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for batch, length, sentences in random_sentences(seed):
        arrays = (tensor.numpy() for tensor in elmo.batch(sentences))
        (output,) = session.run(None, dict(zip(_shapes(elmo), arrays, strict=True)))
        expected = np.zeros_like(output)
        for row, layers in enumerate(elmo.layers(sentences)):
            expected[row, :, : layers.shape[1]] = layers
        yield Parity("elmo", batch, length, relative_difference(output, expected))


def _load(text: Path) -> Elmo:
    vectorizer = load_vectorizer(text).vectorizer
    if not isinstance(vectorizer, ElmoLayers):
        raise ValueError(
            f"{text} was written by {type(vectorizer).__name__}, which has no network to export"
        )
    return vectorizer.elmo


def _shapes(elmo: Elmo) -> dict[str, Shape]:
    return {
        "symbols": ("spelled", elmo.options.max_symbols),
        "words": ("steps", "batch"),
        "lengths": ("batch",),
    }


def _export(text: Path, file: Path) -> None:
    elmo = _load(text)
    write_graph(
        _Layers(elmo).eval(),
        elmo.batch([["a", "dog"], ["runs"], ["on"]]),
        _shapes(elmo),
        ["values"],
        file,
    )
