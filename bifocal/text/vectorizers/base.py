"""Vectorizers: fitted on the training captions, saved with the text, loaded to vectorize new
sentences."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bifocal.durable import file_digest
from bifocal.onnx.text.captions import Array, EncodedCaptions, TextFormat
from bifocal.progress import track
from bifocal.registry import build
from bifocal.serialization import load_config, save_network
from bifocal.text.store import BATCH, CAPTIONS, TextBatch, collate, write_store

PACKAGE = "bifocal.text.vectorizers"
ARTIFACT_FILES, CHECKPOINTS = ("manifest.json", "fingerprint.json"), "checkpoints"
"""Files, and a folder, of the run that wrote a text; they do not belong to the vectorizer."""


class Vectorizer(Protocol):
    """A dataclass whose ``__init__`` fields are its arguments; only ``fit`` reads the file or
    folder ``path``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def format(self) -> TextFormat:
        """Format of the encoded captions; known after ``fit`` or ``load``."""

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Learn from the training captions and return metrics; an interrupted training resumes at
        ``checkpoints``."""

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Encode captions."""

    def save(self, directory: Path) -> None:
        """Write the fitted state."""

    def load(self, directory: Path) -> None:
        """Read the fitted state that :meth:`save` wrote."""


@dataclass(frozen=True)
class FittedVectorizer:
    """A fitted vectorizer for new sentences."""

    vectorizer: Vectorizer

    def vectorize(self, sentences: Sequence[str]) -> TextBatch:
        """Return the same batch as :meth:`bifocal.text.TextStore.gather` for the same captions."""
        encoded = self.vectorizer.transform(sentences)
        return collate(self.vectorizer.format, encoded.values, encoded.indices)


@dataclass(frozen=True)
class CachedVectorizer(FittedVectorizer):
    """A fitted vectorizer that keeps encoded sentences in memory (6 kB per token of ELMo), for
    repeated use."""

    _encoded: dict[str, tuple[Array, Array | None]] = field(
        default_factory=dict, init=False, repr=False
    )

    def vectorize(self, sentences: Sequence[str]) -> TextBatch:
        """Return the same batch as ``FittedVectorizer``."""
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self._encoded]
        if new:
            encoded = self.vectorizer.transform(new)
            indices = [None] * len(new) if encoded.indices is None else encoded.indices
            self._encoded.update(zip(new, zip(encoded.values, indices, strict=True), strict=True))
        rows = [self._encoded[sentence] for sentence in sentences]
        positions = [index for _, index in rows if index is not None]
        return collate(self.vectorizer.format, [values for values, _ in rows], positions or None)


def training_documents(
    vectorizer: Vectorizer, image_ids: Sequence[str], captions: Sequence[str]
) -> list[str]:
    """Return the texts that ``fit`` of this vectorizer takes: the captions, or the joined captions
    of each image."""
    if getattr(vectorizer, "documents", "captions") == "captions":
        return list(captions)
    joined: dict[str, list[str]] = {}
    for image_id, caption in zip(image_ids, captions, strict=True):
        joined.setdefault(image_id, []).append(caption)
    return [" ".join(texts) for texts in joined.values()]


def write_text(
    directory: Path, vectorizer: Vectorizer, caption_ids: Sequence[int], captions: Sequence[str]
) -> dict[str, float]:
    """Write the captions as the fitted ``vectorizer`` encodes them, and the vectorizer; return its
    counts."""
    counts: Counter[str] = Counter()

    def batches() -> Iterator[EncodedCaptions]:
        for start in track(range(0, len(captions), BATCH), "vectorize captions"):
            encoded = vectorizer.transform(captions[start : start + BATCH])
            counts.update(encoded.counts)
            yield encoded

    write_store(directory, vectorizer.format, caption_ids, batches())
    save_vectorizer(directory, vectorizer)
    metrics: dict[str, float] = {"captions": len(captions), **counts}
    if counts["tokens"]:
        metrics["unknown_share"] = counts["unknown_tokens"] / counts["tokens"]
    return metrics


def save_vectorizer(directory: Path, vectorizer: Vectorizer) -> None:
    """Write a fitted vectorizer, for :func:`load_vectorizer`."""
    vectorizer.save(directory)
    # A text with the vectorizer of another text names that vectorizer, so both texts have one
    # digest.
    fitted = getattr(vectorizer, "fitted", vectorizer)
    # Only fit() reads the user's files, whose paths are not valid on another machine, and builds
    # the nested parts.
    left_out = {"path", "train", *getattr(fitted, "parts", ())}
    arguments = {field.name: getattr(fitted, field.name) for field in fields(fitted) if field.init}
    arguments = {name: value for name, value in arguments.items() if name not in left_out}
    save_network(directory, {"name": type(fitted).__name__, "arguments": arguments}, {})


def load_vectorizer(directory: Path) -> FittedVectorizer:
    """Load the vectorizer of a text."""
    config = load_config(directory, "vectorizer")
    vectorizer: Vectorizer = build(PACKAGE, {"name": config["name"], **config["arguments"]})
    vectorizer.load(directory)
    return FittedVectorizer(vectorizer)


def vectorizer_digest(directory: Path) -> str:
    """SHA-256 of all files of the fitted vectorizer but the captions: equal digests encode
    equally."""
    digest = sha256()
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if (
            path.is_file()
            and str(name) not in (CAPTIONS, *ARTIFACT_FILES)
            and name.parts[0] != CHECKPOINTS
        ):
            digest.update(f"{name.as_posix()} {file_digest(path)}\n".encode())
    return digest.hexdigest()
