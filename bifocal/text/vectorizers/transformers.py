"""Captions by a pretrained transformer: one vector per caption, or states of the subwords."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer
from bifocal.text.transformer.folder import NETWORK, TransformerFolder, find_folder, one_source
from bifocal.text.transformer.network import (
    SentenceTower,
    TokenStates,
    Transformer,
    batches_by_length,
)


@dataclass
class PretrainedTransformer:
    """A transformer, by hub name or folder, that the text copies; it has ``tokenizer`` after
    ``fit`` or ``load``."""

    model: str | None = None
    path: Path | str | None = None
    folder: TransformerFolder = field(init=False, repr=False)
    tokenizer: SubwordTokenizer = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        yield from one_source(arguments)

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Load the transformer; the captions are not used."""
        self._open(find_folder(self.model, self.path))
        return {"parameters": self.folder.parameters()}

    def save(self, directory: Path) -> None:
        self.folder.copy(directory / NETWORK)
        self.tokenizer.save(directory / TOKENIZER)

    def load(self, directory: Path) -> None:
        self._open(TransformerFolder.read(directory / NETWORK))

    def _open(self, folder: TransformerFolder) -> None:
        self.folder, self.tokenizer = folder, folder.tokenizer()


@dataclass
class SentenceVectors(PretrainedTransformer):
    """One vector per caption of a pretrained sentence encoder, such as all-MiniLM-L6-v2, which
    stays as it is.

    Reimers and Gurevych, "Sentence-BERT", EMNLP 2019. The text holds a copy of the network.
    Exported models contain the network and need no torch.

    Args:
        batch_size: captions per batch.
        model: name of the encoder on the Hugging Face hub, which is downloaded.
        path: folder of the encoder, as sentence-transformers saves it, instead of ``model``.

    Example:
        >>> SentenceVectors(model="sentence-transformers/all-MiniLM-L6-v2").batch_size
        64
    """

    batch_size: int = 64
    tower: SentenceTower = field(init=False, repr=False)

    @property
    def format(self) -> TextFormat:
        return TextFormat("vectors", self.tower.dim)

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        ids, counts = self.tokenizer.encode(captions)
        return EncodedCaptions(list(self.tower.embed(ids, self.batch_size).numpy()), counts=counts)

    def _open(self, folder: TransformerFolder) -> None:
        super()._open(folder)
        self.tower = SentenceTower.load(folder).to("cuda" if torch.cuda.is_available() else "cpu")


@dataclass
class TransformerTokens(PretrainedTransformer):
    """Contextual vectors: states of a pretrained transformer for every subword, as float16.

    Devlin et al., "BERT", NAACL 2019, section 5.3 (features of several layers). Special tokens are
    left out; an empty caption is the state of the closing special token.

    Args:
        layers: layers to keep: 0 is the embeddings of the subwords, 1 the first layer, -1 the last
            one.
        batch_size: captions per batch.
        model: name of the transformer on the Hugging Face hub, which is downloaded.
        path: folder of the transformer, instead of ``model``.

    Example:
        >>> TransformerTokens(layers=(0, -1), model="google-bert/bert-base-uncased").layers
        (0, -1)
    """

    layers: Sequence[int] = (-1,)
    batch_size: int = 64
    states: TokenStates = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        yield from super().conflicts(arguments)
        if arguments.get("layers") == []:
            yield "layers is empty: give one or more"

    @property
    def format(self) -> TextFormat:
        """Contextual vectors with the dimension of the transformer."""
        return TextFormat("contextual", self.states.transformer.dim, len(self.layers))

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the states of each caption."""
        ids, counts = self.tokenizer.encode(captions)
        device = next(self.states.parameters()).device
        rows = [np.empty(0, np.float16)] * len(ids)
        with torch.inference_mode():
            for numbers, values, lengths in batches_by_length(ids, self.batch_size):
                states, words = self.states(values.to(device), lengths.to(device))
                for number, row, length in zip(
                    numbers, states.cpu().numpy(), words.tolist(), strict=True
                ):
                    rows[number] = row[:, :length].astype(np.float16).ravel()
        return EncodedCaptions(rows, counts=counts)

    def _open(self, folder: TransformerFolder) -> None:
        super()._open(folder)
        transformer = Transformer.load(folder.transformer)
        around = tuple(len(ids) for ids in self.tokenizer.special_ids())
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.states = TokenStates(transformer, self.layers, *around).to(device).eval()
