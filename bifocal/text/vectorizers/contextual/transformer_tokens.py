"""Captions as the hidden states of a pretrained transformer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.transformer.network import TokenStates, Transformer, batches_by_length
from bifocal.text.vectorizers.contextual.pretrained_transformer import PretrainedTransformer


@dataclass
class TransformerTokens(PretrainedTransformer):
    """Contextual vectors: states of a pretrained transformer for every subword, as float16.

    Devlin et al., "BERT", NAACL 2019, section 5.3 (features of several layers). Special tokens are left out; an empty
    caption is the state of the closing special token.

    Args:
        layers: layers to keep: 0 is the embeddings of the subwords, 1 the first layer, -1 the last one.
        batch_size: captions per batch.
        model: name of the transformer on the Hugging Face hub, which is downloaded.
        path: folder of the transformer, instead of ``model``.

    Example:
        >>> from bifocal.text.transformer.tiny import write_tiny_transformer
        >>> folder = write_tiny_transformer(["a dog runs"], dim=8)
        >>> vectorizer = TransformerTokens(layers=(0, -1), path=folder)
        >>> metrics = vectorizer.fit([], seed=0)
        >>> vectorizer.format
        TextFormat(name='contextual', dim=8, layers=2)
        >>> vectorizer.transform(["a dog"]).values[0].shape  # 2 layers, 2 subwords, 8 numbers
        (32,)
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
                for number, row, length in zip(numbers, states.cpu().numpy(), words.tolist(), strict=True):
                    rows[number] = row[:, :length].astype(np.float16).ravel()
        return EncodedCaptions(rows, counts=counts)

    def _open(self, folder: TransformerFolder) -> None:
        super()._open(folder)
        transformer = Transformer.load(folder.transformer)
        around = tuple(len(ids) for ids in self.tokenizer.special_ids())
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.states = TokenStates(transformer, self.layers, *around).to(device).eval()
