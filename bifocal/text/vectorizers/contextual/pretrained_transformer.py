"""Base class of the vectorizers over a pretrained transformer: its folder and its tokenizer."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bifocal.datasets.published import PublishedCorpus
from bifocal.text.expected import ExpectedText
from bifocal.text.format import TextFormat
from bifocal.text.transformer.folder import NETWORK, TransformerFolder
from bifocal.text.transformer.hub import find_folder, one_source
from bifocal.text.transformer.tokenizer import TOKENIZER, SubwordTokenizer

SUBWORDS_PER_WORD = 1.13
"""Of MiniLM's tokenizer on the captions of Flickr8k, whose words are counted without punctuation."""


@dataclass
class PretrainedTransformer(ABC):
    """A transformer that the text holds a copy of, given by its name on the hub or by its folder.

    ``folder`` and ``tokenizer`` are known after ``fit`` or ``load``.
    """

    model: str | None = None
    path: Path | str | None = None
    folder: TransformerFolder = field(init=False, repr=False)
    tokenizer: SubwordTokenizer = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Yield contradictions between arguments."""
        yield from one_source(arguments)

    def expect(self, corpus: PublishedCorpus) -> ExpectedText | None:
        """Return the sizes of the text of a published corpus; None if the transformer is not in a folder."""
        if self.path is None or not Path(self.path).is_dir():
            return None
        folder = TransformerFolder.read(Path(self.path))
        return ExpectedText(
            self.expected_format(folder),
            tokens_per_word=SUBWORDS_PER_WORD,
            fitted_bytes=folder.file_bytes(),
            fit_bytes=4 * folder.parameters(),
            flops_per_token=2 * SUBWORDS_PER_WORD * folder.parameters(embeddings=False),
        )

    @abstractmethod
    def expected_format(self, folder: TransformerFolder) -> TextFormat:
        """Return the format of the text, before ``fit``."""

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
        """Load the transformer; the captions are not used."""
        self._open(find_folder(self.model, self.path))
        return {"parameters": self.folder.parameters()}

    def save(self, directory: Path) -> None:
        """Copy the transformer."""
        self.folder.copy(directory / NETWORK)
        self.tokenizer.save(directory / TOKENIZER)

    def load(self, directory: Path) -> None:
        """Load the transformer that :meth:`save` copied."""
        self._open(TransformerFolder.read(directory / NETWORK))

    def _open(self, folder: TransformerFolder) -> None:
        self.folder, self.tokenizer = folder, folder.tokenizer()
