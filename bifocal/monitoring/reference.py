"""The training reference: observations of the images and queries that a model was trained for, as files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bifocal.durable import new_folder
from bifocal.monitoring.observations import Observations
from bifocal.monitoring.probes import Probes
from bifocal.monitoring.significance import Count
from bifocal.search.vectors import save_array

SCHEMA_VERSION = 2
DESCRIPTION, IMAGES, QUERIES, PROBES = "reference.json", "images.npy", "queries.npy", "probes.parquet"
GROUPS = "groups.npy"
Keep = bool | Literal["hashed"]
"""Whether sentences of users are kept: no, yes, or only their hashes."""


@dataclass(frozen=True)
class Reference:
    """Observations of a model's own data. Its files have vectors, counts and hashes: no caption, and a query only if
    the thresholds say so.

    Attributes:
        model: SHA-256 of the exported model, see ``bifocal.onnx.identity.model_hash``.
        day: on which it was written.
        observations: of the data.
        days: number of days of its queries, up to ``day``.
        sentences: its queries, to observe them again with another model; None if they are not kept.
        hashes: hashes of its queries, to find them in the logs of its days; None if they are not kept.
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
        """Return the hash of a query: it hides the sentence from readers, not from a reader who guesses it."""
        return sha256(f"{self.name} {sentence}".encode()).hexdigest()

    def reduced(self, keep: Keep) -> "Reference":
        """Return the reference with only as much text of users as ``keep`` allows."""
        if keep is True:
            return self
        hashes = self.hashes if self.sentences is None else [self.hash_of(sentence) for sentence in self.sentences]
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
            "unusable": asdict(seen.unusable),
            "unknown_words": _optional(seen.unknown_words),
            "languages": dict(seen.languages),
            "nothing_found": _optional(seen.nothing_found),
        }
        with new_folder(directory, replace=True) as partial:
            save_array(partial / IMAGES, seen.images.astype(np.float16))
            if seen.groups is not None:
                save_array(partial / GROUPS, seen.groups)
            save_array(partial / QUERIES, seen.queries.astype(np.float16))
            if seen.probes is not None:
                _table(seen.probes).to_parquet(partial / PROBES, index=False)
            text = json.dumps(content, indent=2, sort_keys=True) + "\n"
            (partial / DESCRIPTION).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> "Reference":
        """Read a reference.

        Raises:
            FileNotFoundError: the directory holds none.
            ValueError: another version of bifocal wrote it.
        """
        file = directory / DESCRIPTION
        if not file.is_file():
            raise FileNotFoundError(f"{directory} holds no reference: write one, right after the training")
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if content.get("schema_version") != SCHEMA_VERSION:
            found = content.get("schema_version")
            raise ValueError(f"{file} has schema version {found}, expected {SCHEMA_VERSION}: write the reference again")
        probes, groups = directory / PROBES, directory / GROUPS  # former versions wrote no groups
        seen = Observations(
            images=np.load(directory / IMAGES).astype(np.float32),
            queries=np.load(directory / QUERIES).astype(np.float32),
            unusable=Count(**content["unusable"]),
            unknown_words=_count(content["unknown_words"]),
            languages=content["languages"],
            nothing_found=_count(content["nothing_found"]),
            probes=_probes(pd.read_parquet(probes)) if probes.is_file() else None,
            groups=np.load(groups) if groups.is_file() else None,
        )
        # Former versions kept neither the days nor the sentences.
        kept = (content.get("days", 7), content.get("sentences"), content.get("hashes"))
        return cls(content["model"], date.fromisoformat(content["day"]), seen, *kept)


def _optional(count: Count | None) -> dict[str, int] | None:
    return None if count is None else asdict(count)


def _count(content: Mapping[str, int] | None) -> Count | None:
    return None if content is None else Count(**content)


def _table(probes: Probes) -> pd.DataFrame:
    table = pd.DataFrame({"key": list(probes.keys), "found": probes.found, "relevant": probes.relevant})
    if probes.probabilities is not None:
        table["with"], table["without"] = probes.probabilities.T
    return table


def _probes(table: pd.DataFrame) -> Probes:
    probabilities = table[["with", "without"]].to_numpy(float) if "with" in table else None
    return Probes(table["key"].tolist(), table["found"].to_numpy(bool), table["relevant"].to_numpy(bool), probabilities)
