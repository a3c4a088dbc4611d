"""Captions as vectors of a pretrained sentence encoder."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.transformer.network import SentenceTower, batches_by_length
from bifocal.text.vectorizers.contextual.pretrained_transformer import PretrainedTransformer


@dataclass
class SentenceVectors(PretrainedTransformer):
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
    tower: SentenceTower = field(init=False, repr=False)

    @property
    def format(self) -> TextFormat:
        return TextFormat("vectors", self.tower.dim)

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        ids, counts = self.tokenizer.encode(captions)
        device = next(self.tower.parameters()).device
        vectors = torch.empty(len(ids), self.tower.dim)
        with torch.inference_mode():
            for numbers, values, lengths in batches_by_length(ids, self.batch_size):
                vectors[numbers] = self.tower(values.to(device), lengths.to(device)).cpu()
        return EncodedCaptions(list(vectors.numpy()), counts=counts)

    def _open(self, folder: TransformerFolder) -> None:
        super()._open(folder)
        self.tower = SentenceTower.load(folder).to("cuda" if torch.cuda.is_available() else "cpu")
