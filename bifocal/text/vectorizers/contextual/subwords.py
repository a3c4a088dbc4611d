"""Captions as ids of subwords, for an encoder that contains the transformer."""

from collections.abc import Sequence
from dataclasses import dataclass

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.text.vectorizers.contextual.pretrained_transformer import PretrainedTransformer


@dataclass
class Subwords(PretrainedTransformer):
    """Ids of the subwords of a pretrained transformer, which ``TransformerEncoder`` trains further.

    Special tokens are included; long captions are truncated to the longest input of the transformer. The text holds a
    copy of the transformer, whose weights the training starts from.

    Args:
        model: name of the transformer on the Hugging Face hub, which is downloaded.
        path: folder of the transformer, instead of ``model``.

    Example:
        >>> from bifocal.text.transformer.tiny import write_tiny_transformer
        >>> vectorizer = Subwords(path=write_tiny_transformer(["a dog runs"], dim=8))
        >>> metrics = vectorizer.fit([], seed=0)
        >>> vectorizer.transform(["a dog"]).values[0].tolist()  # between the two special tokens
        [2, 4, 5, 3]
    """

    @property
    def format(self) -> TextFormat:
        """Ids, and the dimension of the hidden states."""
        return TextFormat("subwords", self.folder.dim)

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        ids, counts = self.tokenizer.encode(captions)
        return EncodedCaptions(ids, counts=counts)
