"""Releases and rollbacks in an MLflow registry on SQLite."""

import os
from collections.abc import Collection as Container
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import mlflow

from bifocal.durable import change
from bifocal.search.collection.collection import Collection
from bifocal.search.deletion import delete_from_collection, delete_from_index
from bifocal.search.trained_model import COLLECTION, INDEX
from pipelines.app.demo import unpack
from pipelines.commands.registry import promote, release
from runtime.mlflow import (
    VETO,
    alias_lock,
    get_version,
    get_version_number,
    lock,
    make_champion,
    remove_lock,
    version_tags,
)
from runtime.mlflow.releases import download_release, read_digest
from tests.pipelines.releases import register, write_released_run

MODEL = "bifocal"
ALIASES = {"champion": "champion", "previous": "previous"}
LEASE_SECONDS = 3.0
"""A second command waits for the lease of a killed one, otherwise for minutes."""


def _open(folder: Path) -> None:
    """Use the registry of the folder in this process."""
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    mock.patch.multiple(lock, LEASE_SECONDS=LEASE_SECONDS, CLOCK_SKEW_SECONDS=0.0).start()
    mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])


def _unlock() -> None:
    """Remove the lock of a killed command, as ``promote --unlock`` does."""
    with suppress(ValueError):
        remove_lock(MODEL)


class Rollback:
    """The champion is version 2, and version 1 the previous one."""

    old, new = (2, 1, False), (1, None, True)

    def prepare(self, folder: Path) -> None:
        """Register and promote two versions."""
        folder.mkdir()
        _open(folder)
        client = mlflow.MlflowClient()
        experiment = client.create_experiment("moves", (folder / "files").as_uri())
        client.create_registered_model(MODEL)
        for number in (1, 2):
            run = client.create_run(experiment)
            client.create_model_version(MODEL, "file:///none", run.info.run_id)
            with alias_lock(MODEL, 0):
                make_champion(
                    get_version_number(MODEL, number),
                    **ALIASES,
                    answer="yes",
                    file="promotion/of.json",
                )

    def run(self, folder: Path, number: int) -> None:
        """Roll back."""
        _open(folder)
        promote.main(["--rollback", "--reason", "wrong answers"], standalone_mode=False)

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Check aliases and veto when the next command holds the lock, and that a rollback ends in
        the new state."""
        _open(folder)
        _unlock()
        with alias_lock(MODEL, 60):
            found = self._state()
        assert found == self.new if acknowledged else found in (self.old, self.new), found
        if found == self.old:
            self.run(folder, 0)
            assert self._state() == self.new

    def _state(self) -> tuple[int | None, int | None, bool]:
        numbers = [
            version.number if (version := get_version(MODEL, alias)) else None for alias in ALIASES
        ]
        return (numbers[0], numbers[1], VETO in version_tags(get_version_number(MODEL, 2)))


class AddRelease:
    """A version gets another release than before, because an item was deleted from its run."""

    def prepare(self, folder: Path) -> None:
        """Register a run, add its release, and delete an item."""
        folder.mkdir()
        _open(folder)
        mlflow.create_experiment("releases", (folder / "files").as_uri())
        with TemporaryDirectory() as temporary:
            demo = unpack(Path(temporary) / "demo")
            run = write_released_run(demo, folder / "run", "")
        register(run)
        self.run(folder, 0)
        (folder / "old").write_text(self._digest())
        with change(run / "artifacts") as changed:
            delete_from_collection(changed, run / COLLECTION, ["00007"])
            delete_from_index(changed, run / INDEX, ["00007"])

    def run(self, folder: Path, number: int) -> None:
        """Add the release of the run."""
        _open(folder)
        release.main([str(folder / "run")], standalone_mode=False)

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Check that the version has a whole release, and that the next command adds the new
        one."""
        _open(folder)
        _unlock()
        old, found = (folder / "old").read_text(), self._digest()
        self._check_items(folder / "found", found, is_old=found == old)
        assert found != old or not acknowledged, "the release is the old one"
        self.run(folder, 0)
        assert self._digest() != old
        self._check_items(folder / "new", self._digest(), is_old=False)

    def _digest(self) -> str:
        return read_digest(get_version_number(MODEL, 1))

    def _check_items(self, folder: Path, digest: str, *, is_old: bool) -> None:
        _, files = download_release(get_version_number(MODEL, 1), digest, folder)
        collection = Collection.open(files / "collection")
        assert [
            name for name, gone in zip(collection.ids, collection.deleted, strict=True) if gone
        ] == ([] if is_old else ["00007"])
