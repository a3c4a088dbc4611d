"""Captions as vectors of a pretrained sentence encoder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bifocal.text.format import EncodedCaptions, TextFormat
from bifocal.text.transformer.folder import NETWORK, TransformerFolder
from bifocal.text.transformer.hub import find_folder, one_source
from bifocal.text.transformer.network import SentenceTower, batches_by_length
from bifocal.text.transformer.tokenizer import TOKENIZER, SubwordTokenizer


@dataclass
class SentenceVectors:
    """One vector per caption of a pretrained sentence encoder, such as all-MiniLM-L6-v2, which stays as it is.

    Reimers and Gurevych, "Sentence-BERT", EMNLP 2019. The text holds a copy of the network. Exported models contain
    the network and need no torch.

    Args:
        batch_size: captions per batch.
        model: name of the encoder on the Hugging Face hub, which is downloaded.
        path: folder of the encoder, as sentence-transformers saves it, instead of ``model``.

    Example:
        >>> from bifocal.text.transformer.tiny import write_tiny_transformer
        >>> vectorizer = SentenceVectors(path=write_tiny_transformer(["a dog runs"], dim=8))
        >>> metrics = vectorizer.fit([], seed=0)
        >>> vectorizer.transform(["a dog", "a dog runs"]).values[0].shape
        (8,)
    """

    batch_size: int = 64
    model: str | None = None
    path: Path | str | None = None
    folder: TransformerFolder = field(init=False, repr=False)
    tower: SentenceTower = field(init=False, repr=False)
    tokenizer: SubwordTokenizer = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Yield contradictions between arguments."""
        yield from one_source(arguments)

    @property
    def format(self) -> TextFormat:
        """Vectors with the dimension of the encoder."""
        return TextFormat("vectors", self.tower.dim)

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
        """Load the encoder; the captions are not used.

        Raises:
            FileNotFoundError: the folder is incomplete, or the encoder cannot be downloaded.
            ValueError: neither ``model`` nor ``path`` is given.
        """
        self._open(find_folder(self.model, self.path))
        return {"parameters": sum(parameter.numel() for parameter in self.tower.parameters())}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the vector of each caption."""
        ids, counts = self.tokenizer.encode(captions)
        device = next(self.tower.parameters()).device
        vectors = torch.empty(len(ids), self.tower.dim)
        with torch.inference_mode():
            for numbers, values, lengths in batches_by_length(ids, self.batch_size):
                vectors[numbers] = self.tower(values.to(device), lengths.to(device)).cpu()
        return EncodedCaptions(list(vectors.numpy()), counts=counts)

    def save(self, directory: Path) -> None:
        """Copy the encoder."""
        self.folder.copy(directory / NETWORK)
        self.tokenizer.save(directory / TOKENIZER)

    def load(self, directory: Path) -> None:
        """Load the encoder that :meth:`save` copied."""
        self._open(TransformerFolder.read(directory / NETWORK))

    def _open(self, folder: TransformerFolder) -> None:
        self.folder, self.tokenizer = folder, folder.tokenizer()
        self.tower = SentenceTower.load(folder).to("cuda" if torch.cuda.is_available() else "cpu")
