"""What turns captions into numbers: fitted on the training captions, saved with the text, loaded for new sentences."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bifocal.progress import track
from bifocal.registry import build
from bifocal.text.format import Layout, Rows, Text, collate
from bifocal.text.store import BATCH, write_store

FILE = "vectorizer.json"


class Vectorizer(Protocol):
    """A part of ``bifocal.text``: a dataclass, of which the fields that its ``__init__`` takes are its arguments."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def layout(self) -> Layout: ...

    def fit(self, captions: Sequence[str], seed: int) -> dict[str, float]:
        """Learn what it needs from the training captions; returns figures worth reporting."""

    def rows(self, captions: Sequence[str]) -> Rows:
        """Each caption as numbers."""

    def save(self, directory: Path) -> None:
        """Write what was learnt."""

    def load(self, directory: Path) -> None:
        """Read what :meth:`save` wrote."""


@dataclass(frozen=True)
class FittedVectorizer:
    """A fitted vectorizer, for sentences that are in no store."""

    vectorizer: Vectorizer

    def vectorize(self, sentences: Sequence[str]) -> Text:
        """A batch, as :meth:`bifocal.text.TextStore.gather` gives it for the same captions."""
        rows = self.vectorizer.rows(sentences)
        return collate(self.vectorizer.layout, rows.values, rows.indices)


def write_text(
    directory: Path, vectorizer: Vectorizer, caption_ids: Sequence[int], captions: Sequence[str]
) -> dict[str, float]:
    """Write the captions as the fitted ``vectorizer`` reads them, and the vectorizer itself.

    Returns:
        counts of captions and of what the vectorizer met in them, and the share of unknown tokens.
    """
    counts: Counter[str] = Counter()

    def batches() -> Iterator[Rows]:
        for start in track(range(0, len(captions), BATCH), "vectorize captions"):
            rows = vectorizer.rows(captions[start : start + BATCH])
            counts.update(rows.counts)
            yield rows

    write_store(directory, vectorizer.layout, caption_ids, batches())
    vectorizer.save(directory)
    # A file of the user's is read in fit() alone, and its place says nothing on another machine.
    arguments = {f.name: getattr(vectorizer, f.name) for f in fields(vectorizer) if f.init and f.name != "path"}
    content = {"name": type(vectorizer).__name__, "arguments": arguments}
    (directory / FILE).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    figures: dict[str, float] = {"captions": len(captions), **counts}
    if counts["tokens"]:
        figures["unknown_share"] = counts["unknown_tokens"] / counts["tokens"]
    return figures


def load_vectorizer(directory: Path) -> FittedVectorizer:
    """The vectorizer of a text artifact.

    Raises:
        FileNotFoundError: the directory holds none.
    """
    if not (directory / FILE).is_file():
        raise FileNotFoundError(f"{directory} holds no {FILE}: run vectorize_captions, which writes it")
    content = json.loads((directory / FILE).read_text())
    vectorizer: Vectorizer = build("bifocal.text.vectorizers", content["name"], **content["arguments"])
    vectorizer.load(directory)
    return FittedVectorizer(vectorizer)
