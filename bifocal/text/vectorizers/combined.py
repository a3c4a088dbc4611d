"""Vectorizers of vectorizers: the vectors of several, one after the other, or the fitted one of
another text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.text.vectorizers.base import PACKAGE, Vectorizer, load_vectorizer, save_vectorizer


@dataclass
class Concatenated:
    """One vector per caption: the vectors of several vectorizers, one after the other.

    The result is sparse if one of them is, such as tf-idf beside sentence vectors.

    Args:
        vectorizers: two or more with one vector per caption.

    Example:
        >>> from bifocal.text.vectorizers import TFIDF, MeanWordVectors
        >>> vectorizer = Concatenated([TFIDF(), MeanWordVectors(dim=4, epochs=1)])
        >>> metrics = vectorizer.fit(["a dog runs", "dogs run"], seed=0)
        >>> vectorizer.format
        TextFormat(name='sparse', dim=6, layers=1)
        >>> vectorizer.transform(["a dog"]).indices
        [array([0, 2, 3, 4, 5], dtype=int32)]
    """

    parts: ClassVar[Mapping[str, str]] = {"vectorizers": PACKAGE}
    vectorizers: Sequence[Vectorizer] = ()
    fitted_parts: list[Vectorizer] = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        given = arguments.get("vectorizers") or []
        if len(given) < 2:
            yield f"vectorizers has {len(given)} entries: give two or more"
        for part in given:
            if isinstance(part, Mapping) and part.get("documents") == "images":
                yield "documents 'images' works only in TFIDF: leave it out inside Concatenated"

    @property
    def format(self) -> TextFormat:
        """Vectors with the sum of all dimensions; sparse if a part is."""
        formats = [part.format for part in self.fitted_parts]
        sparse = any(part.name == "sparse" for part in formats)
        return TextFormat("sparse" if sparse else "vectors", sum(part.dim for part in formats))

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Fit each vectorizer; a metric has the number of its vectorizer before its name."""
        if len(self.vectorizers) < 2:
            raise ValueError(
                f"Concatenated has {len(self.vectorizers)} vectorizers: give two or more"
            )
        self.fitted_parts = list(self.vectorizers)
        metrics: dict[str, float] = {}
        for number, part in enumerate(self.fitted_parts):
            folder = None if checkpoints is None else checkpoints / str(number)
            metrics |= {
                f"{number}.{name}": value
                for name, value in part.fit(captions, seed, folder).items()
            }
            if part.format.name not in ("vectors", "sparse"):
                raise ValueError(
                    f"{type(part).__name__} gives {part.format.name}, and Concatenated needs "
                    "one vector per caption"
                )
        return metrics

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the vectors of each caption, one after the other."""
        encoded = [part.transform(captions) for part in self.fitted_parts]
        values = [
            np.concatenate(rows) for rows in zip(*(part.values for part in encoded), strict=True)
        ]
        counts: Counter[str] = Counter()
        for part in encoded:
            counts.update(part.counts)
        if self.format.name == "vectors":
            return EncodedCaptions(values, counts=counts)
        dims = [part.format.dim for part in self.fitted_parts]
        starts = np.cumsum([0, *dims[:-1]])
        columns = [
            [start + np.arange(dim)] * len(captions)
            if part.indices is None
            else [start + indices for indices in part.indices]
            for part, start, dim in zip(encoded, starts, dims, strict=True)
        ]
        return EncodedCaptions(
            values,
            [np.concatenate(rows).astype(np.int32) for rows in zip(*columns, strict=True)],
            counts,
        )

    def save(self, directory: Path) -> None:
        """Write each vectorizer to a folder with its number."""
        for number, part in enumerate(self.fitted_parts):
            folder = directory / str(number)
            folder.mkdir(exist_ok=True)
            save_vectorizer(folder, part)

    def load(self, directory: Path) -> None:
        folders = sorted(
            (path for path in directory.iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        self.fitted_parts = [load_vectorizer(folder).vectorizer for folder in folders]


@dataclass
class FromText:
    """The fitted vectorizer of another text, unchanged: a trained model can then be evaluated on
    another dataset.

    Token ids, word vectors and document frequencies come from the other text, so nothing is learned
    from the captions of this dataset.

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

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
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
