"""Export of text encoders behind a pretrained transformer: one ONNX graph from the ids of subwords to embeddings."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from bifocal.export.encoders import Encoder, output_names
from bifocal.export.graphs import Shape, check_shapes, write_graph
from bifocal.export.parity import BATCHES, LENGTHS, Parity, max_difference
from bifocal.export.process import run_in_fresh_process
from bifocal.models import load_model
from bifocal.text import TextBatch
from bifocal.text.vectorizers.base import Vectorizer, load_vectorizer
from bifocal.text.vectorizers.sentence_vectors import SentenceVectors


class _TextFront(nn.Module):
    """Values of a text encoder, from the arrays that ``bifocal.serving.text.SentenceReader`` reads.

    Attributes:
        shapes: shape of each input, by its name.
        ids: number of subwords; None for vectors.
    """

    def __init__(self, shapes: dict[str, Shape], ids: int | None) -> None:
        super().__init__()
        self.shapes, self.ids = shapes, ids

    def example(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return random inputs."""
        lengths = torch.randint(1, length + 1, (batch,), generator=generator)
        lengths[0] = length
        if self.ids is None:
            return torch.rand(batch, cast(int, self.shapes["values"][1]), generator=generator), torch.ones_like(lengths)
        ids = torch.randint(1, self.ids, (batch, length), generator=generator)
        return ids * (torch.arange(length) < lengths[:, None]), lengths


class _Network(_TextFront):
    """Vectors of a sentence encoder."""

    def __init__(self, network: nn.Module, ids: int) -> None:
        super().__init__({"values": ("batch", "time"), "lengths": ("batch",)}, ids)
        self.network = network

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        vectors: Tensor = self.network(values, lengths)
        return vectors


class _TextEncoder(nn.Module):
    def __init__(self, front: _TextFront, model: Encoder) -> None:
        super().__init__()
        self.front, self.model = front, model

    def forward(self, *arrays: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.model.embed_captions(TextBatch(self.front(*arrays), arrays[1]))


def has_network(text: Path) -> bool:
    """Return whether the vectorizer of a text has a network that the graph of the text encoder must contain."""
    return _front(load_vectorizer(text).vectorizer) is not None


def export_text_encoder(model_directory: Path, text: Path, file: Path) -> None:
    """Write the text encoder of a saved model with the network of its vectorizer before it.

    Inputs: ``values`` (batch, time) int64, ids of subwords as ``tokenizer.json`` gives them, and ``lengths`` (batch,)
    int64. Outputs: those of ``bifocal.export.encoders.export_encoder``.

    Raises:
        ValueError: the vectorizer has no network, or the graph has lost a dynamic dimension.
    """
    run_in_fresh_process(_export, model_directory, text, file)
    check_shapes(file, _load(model_directory, text).front.shapes)


def compare_text_encoder(model_directory: Path, text: Path, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported graph with torch on random subwords of several batch sizes and lengths."""
    module = _load(model_directory, text)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(seed)
    for batch in BATCHES:
        for length in LENGTHS:
            inputs = module.front.example(batch, length, generator)
            with torch.inference_mode():
                expected = module(*inputs)
            arrays = {name: tensor.numpy() for name, tensor in zip(module.front.shapes, inputs, strict=True)}
            outputs = session.run(None, arrays)
            pairs = zip(outputs, (expected,) if isinstance(expected, Tensor) else expected, strict=True)
            differences = [max_difference(output, tensor.numpy()) for output, tensor in pairs]
            yield Parity("text_encoder", batch, length, float(np.max(differences)))


def _front(vectorizer: Vectorizer) -> _TextFront | None:
    if isinstance(vectorizer, SentenceVectors):
        return _Network(vectorizer.tower.cpu(), len(vectorizer.tokenizer))
    return None


def _load(model_directory: Path, text: Path) -> _TextEncoder:
    vectorizer = load_vectorizer(text).vectorizer
    front = _front(vectorizer)
    if front is None:
        raise ValueError(f"{text} was written by {type(vectorizer).__name__}, which has no network to export")
    return _TextEncoder(front, cast(Encoder, load_model(model_directory))).eval()


def _export(model_directory: Path, text: Path, file: Path) -> None:
    module = _load(model_directory, text)
    example = module.front.example(3, 4, torch.Generator().manual_seed(0))
    write_graph(module, example, module.front.shapes, output_names(module.model, "text_encoder"), file)
