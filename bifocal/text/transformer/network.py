"""Networks of pretrained transformers: hidden token states, and sentence vectors."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.durable.cached import write_cached
from bifocal.onnx.files import read_json
from bifocal.onnx.text.captions import pad_ids
from bifocal.text.transformer.folder import CONFIG, DenseLayer, TransformerFolder
from bifocal.version import install


class Transformer(nn.Module):
    """The L + 1 hidden states (B, T, K) of a headless transformer for ids (B, T) and lengths (B,),
    embeddings first."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        if getattr(network, "pooler", None) is not None:
            network.register_module("pooler", None)  # a layer that the hidden states do not need
        self.network = network
        config: Any = network.config
        self.dim, self.layers = int(config.hidden_size), int(config.num_hidden_layers)

    @classmethod
    def load(cls, folder: Path) -> "Transformer":
        """Load configuration and weights, as float32, in evaluation mode."""
        return cls(published_network(folder)).eval()

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        states: tuple[Tensor, ...] = self.network(
            input_ids=ids, attention_mask=inside(ids, lengths).long(), output_hidden_states=True
        ).hidden_states
        return states


def published_network(folder: Path) -> Any:
    """Return the network of the library transformers with all its published weights, as float32."""
    library = transformers_library()
    library.utils.logging.disable_progress_bar()
    return library.AutoModel.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, use_safetensors=True
    )


def transformers_library() -> Any:
    """Return the module ``transformers``, or say how to install it."""
    try:
        import transformers  # an extra; and it takes seconds
    except ImportError as error:
        raise ImportError(
            f"text by a transformer needs the package transformers: {install('transformers')}"
        ) from error
    return transformers


class SentenceTower(nn.Module):
    """Sentence-BERT: transformer, poolings, layers of vectors; ids (B, T), lengths (B,) -> (B,
    K)."""

    def __init__(
        self, transformer: Transformer, poolings: Sequence[str], layers: nn.Sequential
    ) -> None:
        super().__init__()
        self.transformer, self.poolings, self.layers = transformer, tuple(poolings), layers

    @classmethod
    def load(cls, folder: TransformerFolder) -> "SentenceTower":
        """Load all weights of a folder, in evaluation mode."""
        layers = nn.Sequential(*(module for layer in folder.layers for module in _modules(layer)))
        return cls(Transformer.load(folder.transformer), folder.poolings, layers).eval()

    @property
    def dim(self) -> int:
        widths = [layer.out_features for layer in self.layers if isinstance(layer, nn.Linear)]
        return widths[-1] if widths else len(self.poolings) * self.transformer.dim

    def embed(self, rows: Sequence[NDArray[np.int32]], batch_size: int = 64) -> Tensor:
        """Return the vectors (N, K) of the ids of N sentences, on the CPU."""
        vectors, device = torch.empty(len(rows), self.dim), next(self.parameters()).device
        with torch.inference_mode():
            for numbers, values, lengths in batches_by_length(rows, batch_size):
                vectors[numbers] = self(values.to(device), lengths.to(device)).cpu()
        return vectors

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        states = self.transformer(ids, lengths)[-1]
        mask = inside(ids, lengths)
        vectors: Tensor = self.layers(
            torch.cat([pool(name, states, mask) for name in self.poolings], dim=1)
        )
        return vectors


class TokenStates(nn.Module):
    """States (B, L, T - before, K) of a sentence without ``before`` and ``after`` special tokens,
    and lengths (B,).

    Layer 0 is the embedding, -1 the last. States are rounded to float16, as in the text store, and
    zero after the end.
    """

    def __init__(
        self, transformer: Transformer, layers: Sequence[int], before: int, after: int
    ) -> None:
        super().__init__()
        count = transformer.layers
        unknown = [layer for layer in layers if not -count - 1 <= layer <= count]
        if unknown:
            raise ValueError(
                f"the transformer has no layer {unknown[0]}: give numbers from {-count - 1} to "
                f"{count}"
            )
        self.transformer, self.layers, self.before, self.after = (
            transformer,
            tuple(layers),
            before,
            after,
        )

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        states = self.transformer(ids, lengths)
        chosen = torch.stack([states[layer] for layer in self.layers], dim=1)[:, :, self.before :]
        words = (lengths - self.before - self.after).clamp(min=1)
        mask = inside(ids[:, self.before :], words)[:, None, :, None]
        return chosen.half().float() * mask, words


def inside(ids: Tensor, lengths: Tensor) -> Tensor:
    """Return whether each token is inside its sentence: (B, T), (B,) -> (B, T) bool."""
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


def pool(name: str, states: Tensor, mask: Tensor) -> Tensor:
    """Return one vector per sentence: states (B, T, K) and mask (B, T) -> (B, K)."""
    weights = mask[:, :, None].to(states.dtype)
    if name == "cls_token":
        return states[:, 0]
    if name == "max_tokens":
        return states.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
    if name == "lasttoken":
        last = mask & ~torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], dim=1)
        return (states * last[:, :, None]).sum(dim=1)
    count = weights.sum(dim=1)
    return (states * weights).sum(dim=1) / (
        count.sqrt() if name == "mean_sqrt_len_tokens" else count
    )


def sentence_vectors(encoder: TransformerFolder, texts: Sequence[str]) -> Tensor:
    """Return the unit vectors (N, K) of N texts; the user's cache keeps them."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "vectors.safetensors"
        write_cached([encoder.identity(), *texts], file, _write_vectors, encoder, texts)
        vectors: Tensor = load_file(file)["vectors"]
        return vectors


def _write_vectors(encoder: TransformerFolder, texts: Sequence[str], file: Path) -> None:
    tower = SentenceTower.load(encoder).to("cuda" if torch.cuda.is_available() else "cpu")
    save_file(
        {"vectors": normalize(tower.embed(encoder.tokenizer().encode(texts)[0]), dim=1)}, file
    )


def batches_by_length(
    rows: Sequence[NDArray[np.int32]], batch_size: int
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield numbers of rows, their ids (B, T) and lengths (B,); rows of similar length share a
    batch."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    for start in range(0, len(rows), batch_size):
        numbers = order[start : start + batch_size]
        ids, lengths = pad_ids([rows[number] for number in numbers])
        yield numbers, torch.from_numpy(ids), torch.from_numpy(lengths)


class UnitNorm(nn.Module):
    """Division of vectors (B, K) by their norms."""

    def forward(self, vectors: Tensor) -> Tensor:
        return normalize(vectors, dim=1)


def _modules(layer: DenseLayer | None) -> Iterator[nn.Module]:
    if layer is None:
        yield UnitNorm()
        return
    weights: dict[str, Tensor] = load_file(layer.folder / "model.safetensors")
    config = read_json(layer.folder / CONFIG)
    linear = nn.Linear(config["in_features"], config["out_features"], bias="linear.bias" in weights)
    linear.load_state_dict(
        {name.removeprefix("linear."): tensor.float() for name, tensor in weights.items()}
    )
    yield linear
    if layer.activation != "Identity":
        yield nn.Tanh() if layer.activation == "Tanh" else nn.ReLU()
