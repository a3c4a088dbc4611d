"""Retention of artifacts: a property test against a model, and real files on S3 and on a disk."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bifocal.durable import write_json
from runtime.artifacts import artifact_hash, hash_files
from runtime.retention import Unit, artifact_units, checkpoint_units, delete_unit, unneeded
from runtime.s3.storage import Storage

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS, NEWEST = 10, 2
CHAIN = ("dataset", "features", "embedding", "onnx")


class World:
    """Runs, versions and aliases; ``present`` are the units that are not deleted."""

    def __init__(self) -> None:
        self.now, self.present, self.versions = START, list[Unit](), list[frozenset[str]]()
        self.champion: int | None = None
        self.previous: int | None = None

    def run(self, fresh: int) -> None:
        """Run the pipeline; the first ``fresh`` stages from the end are new, and the others come
        from the cache."""
        inputs, hashes = frozenset[str](), set[str]()
        for position, name in enumerate(CHAIN):
            cached = [unit for unit in self.present if unit.name == name]
            if position < len(CHAIN) - fresh and cached:
                digest = max(cached, key=lambda unit: unit.changed).digest
            else:
                digest = f"{name}-{len(self.present)}-{self.now}"
                self.present.append(Unit(digest, name, self.now, 1, digest, inputs))
                self.now += timedelta(seconds=1)
            inputs = frozenset([digest])
            hashes.add(digest)
        self.versions.append(frozenset(hashes))

    def promote(self) -> None:
        if self.versions:
            self.previous, self.champion = self.champion, len(self.versions) - 1

    def roll_back(self) -> None:
        if self.previous is not None:
            self.champion, self.previous = self.previous, None

    def needed(self) -> set[str]:
        """Hashes of the versions with an alias."""
        return {
            digest
            for number in (self.champion, self.previous)
            if number is not None
            for digest in self.versions[number]
        }

    def clean(self, deletions: int) -> None:
        """Delete what ``unneeded`` returns; a kill ends it after some ``deletions``."""
        for unit in unneeded(self.present, self.needed(), self.now, DAYS, NEWEST)[:deletions]:
            self.present.remove(unit)

    def check(self) -> None:
        present = {unit.digest for unit in self.present}
        assert self.needed() <= present
        for unit in self.present:
            assert unit.inputs <= present, "an artifact without its lineage"


STEPS = st.one_of(
    st.tuples(st.just("run"), st.integers(0, 4)),
    st.tuples(st.just("promote"), st.just(0)),
    st.tuples(st.just("roll_back"), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 12)),
    st.tuples(st.just("clean"), st.sampled_from([1, 2, 3, 1000])),
)


@given(st.lists(STEPS, max_size=30))
def test_nothing_that_is_needed_is_deleted(steps: list[tuple[str, int]]) -> None:
    world = World()
    for name, value in steps:
        if name == "wait":
            world.now += timedelta(days=value)
        elif name in ("run", "clean"):
            getattr(world, name)(value)
        else:
            getattr(world, name)()
        recent = [unit for unit in world.present if unit.changed > world.now - timedelta(days=DAYS)]
        world.check()
        assert {unit.digest for unit in recent} <= {unit.digest for unit in world.present}
    before = {
        unit.name: unit.digest for unit in sorted(world.present, key=lambda unit: unit.changed)
    }
    world.clean(1000)
    world.check()
    assert set(before.values()) <= {unit.digest for unit in world.present}, (
        "the cache gives the newest of each name"
    )


@given(weeks=st.integers(30, 60))
@settings(max_examples=5)
def test_a_year_of_weekly_runs_keeps_a_bounded_number(weeks: int) -> None:
    world = World()
    for _ in range(weeks):
        world.run(4)
        world.promote()
        world.clean(1000)
        world.now += timedelta(days=7)
    assert len(world.present) <= len(CHAIN) * (NEWEST + 2)


def write(folder: Path, inputs: dict[str, str], text: str = "text") -> str:
    folder.mkdir(parents=True)
    (folder / "table.txt").write_text(text)
    content = {"schema_version": 1, "inputs": inputs, "files": hash_files(folder)}
    write_json(folder / "manifest.json", content)
    return artifact_hash(folder)


def test_units_of_a_run_on_s3_are_found_and_deleted(s3: None, tmp_path: Path) -> None:
    root, storage = "s3://bucket/runs", Storage()
    dataset = write(tmp_path / "runs/bifocal/a/prepare_dataset/1/dataset", {})
    write(tmp_path / "runs/bifocal/a/extract_features/2/features", {"dataset": dataset}, "features")
    (tmp_path / "runs/bifocal/a/notes.txt").write_text("a file of a user")
    storage.upload(tmp_path / "runs", root)
    units = {unit.name: unit for unit in artifact_units(root)}
    assert set(units) == {"dataset", "features"}
    assert units["features"].inputs == {dataset} == {units["dataset"].digest}
    assert units["features"].size > len("features")
    later = datetime.now(UTC) + timedelta(days=20)
    assert unneeded(units.values(), [], later, 30, 1) == []
    assert unneeded(units.values(), [units["features"].digest], later, 10, 1) == []
    for unit in units.values():
        delete_unit(unit)
    assert list(storage.listing(root)) == ["bifocal/a/notes.txt"]


def test_units_of_a_shared_store_have_the_name_of_the_output(tmp_path: Path) -> None:
    digests = [
        write(tmp_path / "features" / (character * 32), {}, character) for character in "abc"
    ]
    partial = tmp_path / "features" / ("d" * 32 + ".partial")
    (partial / "checkpoints").mkdir(parents=True)
    (partial / "checkpoints/last.safetensors").write_text("killed")
    old = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    for path in tmp_path.rglob("*.*"):
        os.utime(path, (old, old))
    units = artifact_units(str(tmp_path))
    assert {unit.name for unit in units if unit.digest} == {"features"}
    due = unneeded(units, [digests[0]], datetime.now(UTC), 10, 1)
    assert str(partial) in {unit.address for unit in due}
    assert digests[0] not in {unit.digest for unit in due}
    for unit in due:
        delete_unit(unit)
    assert len(list((tmp_path / "features").iterdir())) == 4 - len(due)


def test_checkpoints_of_a_running_training_stay(s3: None, tmp_path: Path) -> None:
    for name in ("a" * 32, "b" * 32, "notes"):
        (tmp_path / name / "process").mkdir(parents=True)
        (tmp_path / name / "index.json").write_text(json.dumps({"embedding/last": "process/1"}))
        (tmp_path / name / "process/1").write_text("weights")
    Storage().upload(tmp_path, "s3://bucket/checkpoints")
    units = checkpoint_units("s3://bucket/checkpoints")
    assert [unit.address[-32:] for unit in units] == ["a" * 32, "b" * 32]
    assert unneeded(units, [], datetime.now(UTC), 30, 1) == []
    assert unneeded(units, [], datetime.now(UTC) + timedelta(days=31), 30, 1)[::-1] in (
        units,
        units[::-1],
    )
