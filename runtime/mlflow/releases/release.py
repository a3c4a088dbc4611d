"""A release: a model with the collection, the index and the hubness bank that belong to it, tied by hashes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bifocal.hubness.bank import FILE as BANK
from bifocal.hubness.bank import HubnessBank
from bifocal.onnx.files import model_hash
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import STATES
from bifocal.search.index.files import DESCRIPTION as INDEX_DESCRIPTION
from bifocal.search.index.files import IndexDescription
from runtime.artifacts import MANIFEST, hash_files, write_json

DESCRIPTION = "release.json"
COLLECTION, INDEX, HUBNESS = "collection", "index", "hubness"
"""Folders of a release."""
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Release:
    """Contents of ``release.json``."""

    model: str  # SHA-256 of the exported model, see ``bifocal.onnx.files.model_hash``
    # SHA-256 of each file of the collection, the index with its calibration, and the hubness bank
    files: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 over the hashes of the model and of the files."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def equals(self, other: "Release") -> bool:
        """Whether both have the same model, images, vectors, biases and probabilities; durations do not count."""
        return (self.model, self._contents()) == (other.model, other._contents())

    def _contents(self) -> dict[str, str]:
        ignored = {
            f"{COLLECTION}/{MANIFEST}",
            f"{COLLECTION}/{STATES}",
            f"{INDEX}/{MANIFEST}",
            f"{INDEX}/{INDEX_DESCRIPTION}",
        }
        return {name: digest for name, digest in self.files.items() if name not in ignored}

    def write(self, folder: Path) -> None:
        """Write ``release.json``."""
        write_json(folder / DESCRIPTION, {"schema_version": SCHEMA_VERSION, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> "Release":
        """Read ``release.json``."""
        file = folder / DESCRIPTION
        if not file.is_file():
            raise FileNotFoundError(f"the release has no {DESCRIPTION}: run python -m pipelines release again")
        content = json.loads(file.read_text(encoding="utf-8"))
        if content.pop("schema_version", None) != SCHEMA_VERSION:
            raise ValueError(f"{DESCRIPTION} has another schema version than {SCHEMA_VERSION}: release the run again")
        return cls(**content)


def describe_release(onnx: Path, collection: Path, index: Path, embedding: Path) -> Release:
    """Return the release of an exported model with the artifacts that its run made of it."""
    model, described = model_hash(onnx), IndexDescription.read(index)
    described.check_model(model)
    if Collection.open(collection).model.sha256 != model:
        raise ValueError(f"{collection} was embedded by another model: embed the collection again")
    bank = HubnessBank.read(embedding)
    if described.hubness != (None if bank is None else bank.reference):
        raise ValueError(
            f"the biases of {index} are of {described.hubness}, but {embedding} has the hubness bank of "
            f"{None if bank is None else bank.reference}: build the index again"
        )
    folders = {COLLECTION: collection, INDEX: index}
    files = {f"{part}/{name}": of for part, folder in folders.items() for name, of in hash_files(folder).items()}
    if bank is not None:
        files |= {f"{HUBNESS}/{BANK}": hash_files(embedding / BANK)["."]}
    return Release(model, dict(sorted(files.items())))
