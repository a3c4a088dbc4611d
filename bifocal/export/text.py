"""Export of text encoders behind a pretrained transformer: one ONNX graph from the ids of subwords to embeddings."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from bifocal.export.encoders import Encoder, output_names
from bifocal.export.graphs.parity import Parity, compare_graph
from bifocal.export.graphs.write import Shape, check_shapes, run_in_fresh_process, write_graph
from bifocal.models import load_model
from bifocal.text import TextBatch
from bifocal.text.transformer.clip_bpe import tower_tokenizer
from bifocal.text.vectorizers.base import Vectorizer, load_vectorizer
from bifocal.text.vectorizers.combined import Concatenated
from bifocal.text.vectorizers.open_clip_text import OpenClipText
from bifocal.text.vectorizers.transformers import SentenceVectors, TransformerTokens


class _TextFront(nn.Module, ABC):
    """Values and lengths of a text encoder, from the arrays of ``bifocal.onnx.text.sentences.SentenceReader``."""

    shapes: dict[str, Shape]

    @abstractmethod
    def example(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return random inputs."""


class _Network(_TextFront):
    """Output of a network over subwords: values, or values and lengths, from ids (B, T) and lengths (B,)."""

    def __init__(self, network: nn.Module, ids: int, special: int) -> None:
        super().__init__()
        self.network, self.ids, self.special = network, ids, special
        self.shapes = {"values": ("batch", "time"), "lengths": ("batch",)}

    def example(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        lengths = torch.randint(1, length + 1, (batch,), generator=generator)
        lengths[0] = length
        lengths, longest = lengths + self.special, length + self.special
        ids = torch.randint(1, self.ids, (batch, longest), generator=generator)
        return ids * (torch.arange(longest) < lengths[:, None]), lengths

    def forward(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        outputs: Tensor | tuple[Tensor, Tensor] = self.network(values, lengths)
        return (outputs, lengths) if isinstance(outputs, Tensor) else outputs


class ClipTower(_TextFront):
    """Vectors of a contrastive model's text tower; ids are padded to one length, and a sentence ends with ``end``."""

    def __init__(self, network: nn.Module, length: int, end: int, ids: int = 0, padding: int = 0) -> None:
        super().__init__()
        self.network, self.length, self.end = network, length, end
        self.ids, self.padding = ids or end, padding
        self.shapes = {"values": ("batch", length), "lengths": ("batch",)}

    def example(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        longest = min(length + 1, self.length)
        lengths = torch.randint(1, longest + 1, (batch,), generator=generator)
        ids = torch.randint(1, self.ids, (batch, self.length), generator=generator)
        position = torch.arange(self.length)
        ids = torch.where(position == lengths[:, None] - 1, self.end, ids)
        return torch.where(position < lengths[:, None], ids, self.padding), lengths

    def forward(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        network = cast(Any, self.network)
        return network.encode_text(values), lengths


class _Vectors(_TextFront):
    """Vectors that need no network."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.shapes = {"values": ("batch", dim), "lengths": ("batch",)}
        self.dim = dim

    def example(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        return torch.rand(batch, self.dim, generator=generator), torch.ones(batch, dtype=torch.int64)

    def forward(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return values, lengths


class _Concatenation(_TextFront):
    """Vectors of several fronts; the inputs of each but the first have its number behind their names."""

    def __init__(self, fronts: Sequence[_TextFront]) -> None:
        super().__init__()
        self.fronts = nn.ModuleList(fronts)
        self.shapes = {
            name if number == 0 else f"{name}_{number}": tuple(f"{d}_{number}" if d == "time" else d for d in shape)
            for number, front in enumerate(fronts)
            for name, shape in front.shapes.items()
        }

    def example(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        fronts = cast(list[_TextFront], list(self.fronts))
        return tuple(array for front in fronts for array in front.example(batch, length, generator))

    def forward(self, *arrays: Tensor) -> tuple[Tensor, Tensor]:
        pairs = zip(self.fronts, arrays[::2], arrays[1::2], strict=True)
        return torch.cat([front(values, lengths)[0] for front, values, lengths in pairs], dim=1), arrays[1]


class _TextEncoder(nn.Module):
    def __init__(self, front: _TextFront, model: Encoder) -> None:
        super().__init__()
        self.front, self.model = front, model

    def forward(self, *arrays: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.model.embed_captions(TextBatch(*self.front(*arrays)))


def has_network(text: Path) -> bool:
    """Return whether the graph of the text encoder must contain networks, or join the vectors, of a vectorizer."""
    return _front(load_vectorizer(text).vectorizer) is not None


def export_text_encoder(model_directory: Path, text: Path, file: Path) -> None:
    """Write the text encoder with its vectorizer's network: ``values`` (batch, time) int64 subwords and ``lengths``
    (batch,), or with ``Concatenated`` also ``values_1`` (batch, K) float32 and so on.
    """
    run_in_fresh_process(_export, model_directory, text, file)
    check_shapes(file, _load(model_directory, text).front.shapes)


def compare_text_encoder(model_directory: Path, text: Path, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported graph with torch on random subwords of several batch sizes and lengths."""
    module = _load(model_directory, text)
    generator = torch.Generator().manual_seed(seed)

    def example(batch: int, length: int) -> tuple[Tensor, ...]:
        return module.front.example(batch, length, generator)

    return compare_graph("text_encoder", file, module, example, min_scale=1.0)


def _front(vectorizer: Vectorizer) -> _TextFront | None:
    if isinstance(vectorizer, SentenceVectors | TransformerTokens):
        network = vectorizer.tower if isinstance(vectorizer, SentenceVectors) else vectorizer.states
        special = sum(len(ids) for ids in vectorizer.tokenizer.special_ids())
        return _Network(network.cpu(), len(vectorizer.tokenizer), special)
    if isinstance(vectorizer, OpenClipText):
        backbone = vectorizer.backbone
        tokenizer = tower_tokenizer(backbone.tokenizer, backbone.context_length)
        if tokenizer is None:
            return None
        padding = (tokenizer.padding or {"pad_id": 0})["pad_id"]
        tokenizer.no_padding()
        # CLIP's tower ends at the largest id.
        ids, end = tokenizer.get_vocab_size() - 1, tokenizer.encode("a").ids[-1]
        return ClipTower(backbone.network.cpu(), backbone.context_length, end, ids, padding)
    if isinstance(vectorizer, Concatenated):
        fronts = [_front(part) for part in vectorizer.fitted_parts]
        return _Concatenation(
            [_Vectors(p.format.dim) if f is None else f for p, f in zip(vectorizer.fitted_parts, fronts, strict=True)]
        )
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
