"""Base class of the vectorizers over a pretrained transformer: its folder and its tokenizer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer
from bifocal.text.transformer.folder import NETWORK, TransformerFolder
from bifocal.text.transformer.hub import find_folder, one_source


@dataclass
class PretrainedTransformer:
    """A transformer, by hub name or folder, that the text copies; it has ``tokenizer`` after ``fit`` or ``load``."""

    model: str | None = None
    path: Path | str | None = None
    folder: TransformerFolder = field(init=False, repr=False)
    tokenizer: SubwordTokenizer = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        yield from one_source(arguments)

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
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
