"""Deleted items of a registered model: they are in no answer of any of its versions, and in no later release.

The ids are files in the run of the promotion lock. Each file is written once, so that writers never conflict. A single
id is also the name of its file: readers need the list of the files, and no request for each of them.
"""

import json
import shutil
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import mlflow

from bifocal.durable import change
from bifocal.search.collection.collection import Collection
from bifocal.search.deletion import delete_from_collection, delete_from_index
from bifocal.search.index.index import SearchIndex
from bifocal.serving.service.live.deletions import Deletions
from runtime.artifacts import change_manifest
from runtime.mlflow.connection import connect, mlflow_errors_as_oserror
from runtime.mlflow.promotion.lock import lock_run
from runtime.mlflow.releases.release import COLLECTION, INDEX

FOLDER, KEY = "deletions", "items"
ITEM, LONGEST = "item-", 200
"""Prefix of a file with one item, whose id follows in hexadecimal digits, and the most digits."""


class RegistryDeletions(Deletions):
    """Ids of the deleted items of a registered model; other processes add to them."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model, self._read = model, set[str]()

    def refresh(self) -> None:
        """Read the deletions of other processes."""
        with mlflow_errors_as_oserror():
            run_id = lock_run(connect(), self.model)
            if run_id is None:
                return
            for entry in connect().list_artifacts(run_id, FOLDER):
                if entry.path not in self._read:
                    name = Path(entry.path).stem
                    if name.startswith(ITEM):
                        self.include([bytes.fromhex(name.removeprefix(ITEM)).decode()])
                    else:
                        self.include(mlflow.artifacts.load_dict(f"runs:/{run_id}/{entry.path}")[KEY])
                    self._read.add(entry.path)

    def add(self, item_id: str) -> None:
        """Delete an item."""
        self.add_all([item_id])

    def add_all(self, item_ids: Iterable[str]) -> None:
        """Delete items; they stay deleted after a crash."""
        wanted = sorted(set(item_ids) - set(self))
        if not wanted:
            return
        with mlflow_errors_as_oserror():
            run_id = lock_run(connect(), self.model)
            if run_id is None:
                raise ValueError(f"the registry has no version of {self.model}: there is nothing to delete")
            digits = wanted[0].encode().hex()
            alone = len(wanted) == 1 and len(digits) <= LONGEST
            name = ITEM + digits if alone else sha256(json.dumps(wanted).encode()).hexdigest()
            connect().log_dict(run_id, {KEY: wanted}, f"{FOLDER}/{name}.json")
        self.include(wanted)


def read_deletions(model: str) -> frozenset[str]:
    """Return the ids of the deleted items of a registered model."""
    deletions = RegistryDeletions(model)
    deletions.refresh()
    return frozenset(deletions)


def without_deleted(model: str, collection: Path, index: Path, folder: Path) -> tuple[Path, Path]:
    """Return collection and index without vectors of deleted items: copies below ``folder``, if they have any."""
    opened, deleted = Collection.open(collection), read_deletions(model)
    present = {item_id for item_id, gone in zip(opened.ids, opened.deleted, strict=True) if not gone}
    indexed = set(SearchIndex.open(index))
    if not deleted & (present | indexed):
        return collection, index
    copies = shutil.copytree(collection, folder / COLLECTION), shutil.copytree(index, folder / INDEX)
    with change(folder) as changed:
        if deleted & present:
            delete_from_collection(changed, copies[0], sorted(deleted & present))
        if deleted & indexed:
            delete_from_index(changed, copies[1], sorted(deleted & indexed))
        for copy in copies:
            change_manifest(changed, copy)
    return copies
