"""The training reference: observations of the images and queries that a model was trained for, as
files."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np

from bifocal.durable import new_folder, write_json
from bifocal.monitoring.observations import Count, Observations
from bifocal.onnx.files import read_versioned
from bifocal.search.vectors import save_array

SCHEMA_VERSION = 3
DESCRIPTION, IMAGES, QUERIES, GROUPS = "reference.json", "images.npy", "queries.npy", "groups.npy"
COUNTS = ("unknown_words", "nothing_found")
Keep = bool | Literal["hashed"]
"""Whether sentences of users are kept: no, yes, or only their hashes."""


@dataclass(frozen=True)
class Reference:
    """Observations of a model's own data. Its files have vectors, counts and hashes: no caption,
    and a query only if the thresholds say so.

    Attributes:
        model: SHA-256 of the exported model, see ``bifocal.onnx.files.model_hash``.
        day: on which it was written.
        observations: of the data.
        days: number of days of its queries, up to ``day``.
        sentences: its queries, to observe them again with another model; None if they are not kept.
        hashes: hashes of its queries, to find them in the logs of its days; None if they are not
            kept.
    """

    model: str
    day: date
    observations: Observations
    days: int = 7
    sentences: Sequence[str] | None = None
    hashes: Sequence[str] | None = None

    @property
    def name(self) -> str:
        """Short name: a hash of the model and the day."""
        return sha256(f"{self.model} {self.day}".encode()).hexdigest()[:16]

    def hash_of(self, sentence: str) -> str:
        """Return the hash of a query: it hides the sentence from readers, not from a reader who
        guesses it."""
        return sha256(f"{self.name} {sentence}".encode()).hexdigest()

    def reduced(self, keep: Keep) -> "Reference":
        """Return the reference with only as much text of users as ``keep`` allows."""
        if keep is True:
            return self
        hashes = (
            self.hashes
            if self.sentences is None
            else [self.hash_of(sentence) for sentence in self.sentences]
        )
        return replace(self, sentences=None, hashes=hashes if keep else None)

    def write(self, directory: Path) -> None:
        """Write the files; a crash leaves the old reference, or none."""
        seen = self.observations
        content = {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "day": self.day.isoformat(),
            "days": self.days,
            "sentences": None if self.sentences is None else list(self.sentences),
            "hashes": None if self.hashes is None else list(self.hashes),
            **{
                name: None if (count := getattr(seen, name)) is None else asdict(count)
                for name in COUNTS
            },
        }
        with new_folder(directory, replace=True) as partial:
            save_array(partial / IMAGES, seen.images.astype(np.float16))
            if seen.groups is not None:
                save_array(partial / GROUPS, seen.groups)
            save_array(partial / QUERIES, seen.queries.astype(np.float16))
            write_json(partial / DESCRIPTION, content)

    @classmethod
    def read(cls, directory: Path) -> "Reference":
        """Read a reference.

        Raises:
            FileNotFoundError: the directory holds none.
            ValueError: another version of bifocal wrote it.
        """
        hint = "write a reference, right after the training"
        content = read_versioned(directory / DESCRIPTION, "reference", SCHEMA_VERSION, hint)
        groups = directory / GROUPS
        seen = Observations(
            images=np.load(directory / IMAGES).astype(np.float32),
            queries=np.load(directory / QUERIES).astype(np.float32),
            groups=np.load(groups) if groups.is_file() else None,
            **{name: None if content[name] is None else Count(**content[name]) for name in COUNTS},
        )
        kept = (content["days"], content["sentences"], content["hashes"])
        return cls(content["model"], date.fromisoformat(content["day"]), seen, *kept)
