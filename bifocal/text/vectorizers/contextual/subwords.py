"""Captions as ids of subwords, for an encoder that contains the transformer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bifocal.datasets.published import PublishedCorpus
from bifocal.text.expected import ExpectedText
from bifocal.text.format import EncodedCaptions, TextFormat
from bifocal.text.transformer.folder import TransformerFolder
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

    def expected_format(self, folder: TransformerFolder) -> TextFormat:
        """Return the format of the text, before ``fit``."""
        return TextFormat("subwords", folder.dim)

    def expect(self, corpus: PublishedCorpus) -> ExpectedText | None:
        """Return the sizes of the text of a published corpus; None if the transformer is not in a folder."""
        expected = super().expect(corpus)
        if expected is None or self.path is None:
            return None
        # The vectorizer itself runs no network.
        return replace(expected, network=TransformerFolder.read(Path(self.path)).config, fit_bytes=0, flops_per_token=0)

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the ids of each caption."""
        ids, counts = self.tokenizer.encode(captions)
        return EncodedCaptions(ids, counts=counts)
