"""The fitted vectorizer of another text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.text.vectorizers.base import Vectorizer, load_vectorizer


@dataclass
class FromText:
    """The fitted vectorizer of another text, unchanged: a trained model can then be evaluated on another dataset.

    Token ids, word vectors and document frequencies come from the other text, so nothing is learned from the
    captions of this dataset.

    Args:
        path: folder of the other text, which ``bifocal.text.vectorizers.base.write_text`` wrote.
    """

    path: Path | str | None = None
    fitted: Vectorizer = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        if arguments.get("path") is None:
            yield "path is missing, and FromText has no default for it: name the folder of a text"

    @property
    def format(self) -> TextFormat:
        return self.fitted.format

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
        """Load the vectorizer; the captions are not used."""
        if self.path is None:
            raise ValueError("FromText needs path, the folder of a text")
        self.fitted = load_vectorizer(Path(self.path)).vectorizer
        return {}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        return self.fitted.transform(captions)

    def save(self, directory: Path) -> None:
        self.fitted.save(directory)

    def load(self, directory: Path) -> None:
        self.fitted = load_vectorizer(directory).vectorizer
