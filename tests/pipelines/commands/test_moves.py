"""Random promotions, rollbacks, refreshes, additions and deletions, killed at random writes to the
registry.

    make rehearse-moves [MOVES=2000]

The model is twenty lines: the images of the archive, the deleted ones, and the aliases.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import mlflow
import numpy as np
import pytest

from bifocal.progress import track
from bifocal.search.trained_model import TrainedModel
from runtime.mlflow import (
    VETO,
    alias_lock,
    get_version,
    get_version_number,
    remove_lock,
    version_tags,
)
from runtime.mlflow.releases import RegistryDeletions, read_deletions, released_items
from tests.rehearsals.year.fleet import Truth
from tests.rehearsals.year.operation import Archive, Run, rollback, train
from tests.runtime.mlflow.kills import Killed, limit_writes

pytestmark = pytest.mark.slow  # a rehearsal
MOVES = int(os.environ.get("MOVES", "12"))
MODEL, VERSIONS, MOST_WRITES, MOST_IMAGES = "bifocal", 3, 24, 30
WRITES = (
    "create_run",
    "delete_model_version_tag",
    "delete_registered_model_alias",
    "delete_registered_model_tag",
    "log_artifact",
    "log_artifacts",
    "log_dict",
    "log_param",
    "set_model_version_tag",
    "set_registered_model_alias",
    "set_registered_model_tag",
    "set_tag",
)


class World:
    """Three versions with their runs, and what a user knows of them."""

    def __init__(self, demo: TrainedModel, folder: Path, random: np.random.Generator) -> None:
        self.random, self.archive, self.deleted = random, Archive(demo, Truth({})), set[str]()
        self.albums = 1
        self.archive.add("1", 1)
        self.runs = [train(demo, folder / str(number), number) for number in range(VERSIONS)]
        self._promote(self.runs[0])

    def _promote(self, run: Run) -> None:
        run.release(self.archive)
        run.promote()

    def version(self, alias: str) -> int | None:
        version = get_version(MODEL, alias)
        return None if version is None else version.number

    def served(self) -> set[str]:
        """Return the items that services of the champion answer with."""
        number = self.version("champion")
        assert number is not None
        return {item_id for item_id, _ in released_items(get_version_number(MODEL, number))}

    def promote(self) -> None:
        """Release another version and promote it, as ``retrain`` does."""
        others = [run for run in self.runs if run.number != self.version("champion")]
        self._promote(others[self.random.integers(len(others))])

    def roll_back(self) -> None:
        """Refresh the previous version, mostly, and go back to it, as ``refresh-previous`` does."""
        previous = self.version("previous")
        if previous is not None and self.random.random() < 0.8:
            self.runs[previous - 1].release(self.archive)
        with suppress(ValueError):  # no previous version, or one without newer images
            rollback()

    def refresh(self) -> None:
        number = self.version("champion")
        assert number is not None
        self.runs[number - 1].release(self.archive)
        assert self.served() == set(self.archive.items) - read_deletions(MODEL)

    def add(self) -> None:
        """Remove the files of deleted images, add others, and refresh."""
        self.archive.items = [item for item in self.archive.items if item not in self.deleted]
        if len(self.archive.items) < MOST_IMAGES:
            self.albums += 1
            self.archive.add(f"{self.albums}", 1)
        self.refresh()

    def delete(self) -> None:
        item = str(
            self.random.choice(self.archive.items[1:])
        )  # a collection without images is an error
        RegistryDeletions(MODEL).add(item)
        self.deleted.add(item)


@pytest.fixture
def kill_at(mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets so many more writes to the registry succeed."""
    mlflow.set_tracking_uri(mlflow_store)
    return limit_writes(monkeypatch, WRITES)


def test_no_item_is_lost_or_returned_and_no_champion_is_vetoed(
    demo: TrainedModel,
    tmp_path: Path,
    kill_at: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    mlflow.create_experiment("releases", (tmp_path / "files").as_uri())
    random, killed = np.random.default_rng(34), 0
    world = World(demo, tmp_path, random)
    for _ in track(range(MOVES), "moves", total=MOVES) if MOVES > 100 else range(MOVES):
        before = world.served()
        move = getattr(
            world, str(random.choice(["promote", "roll_back", "refresh", "add", "delete"]))
        )
        kill_at(int(random.integers(MOST_WRITES)))
        try:
            move()
        except Killed:
            killed += 1
        kill_at(10**9)
        with suppress(ValueError):
            remove_lock(
                MODEL
            )  # as 'promote --unlock' does; otherwise the lock is free after three minutes
        with alias_lock(MODEL, 60):  # the next command finishes a killed one, or leaves it out
            champion = world.version("champion")
        deletions, served = read_deletions(MODEL), world.served()
        assert world.deleted <= deletions, "an acknowledged deletion is lost"
        assert not served & deletions, "a deleted item is back"
        assert before - deletions <= served, "an item is lost"
        assert served <= set(world.archive.items)
        assert VETO not in version_tags(get_version_number(MODEL, champion or 0)), (
            "the champion has a veto"
        )
        world.deleted |= deletions
    assert 0 < killed < MOVES
