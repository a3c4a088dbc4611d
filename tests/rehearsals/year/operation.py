"""The operator's work of a week: albums, versions, releases, promotions, the monitor, and what is
deleted."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
from click.testing import CliRunner
from numpy.typing import NDArray

from bifocal.durable import write_json
from bifocal.monitoring import Artifacts, Monitor, Thresholds
from bifocal.onnx.files import model_hash
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.index.build import index_of_collection
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, TrainedModel
from pipelines.commands.registry import clean as clean_command
from pipelines.policies import load_thresholds
from runtime.artifacts import hash_files
from runtime.mlflow import alias_lock, get_version_number, make_champion, remove_lock, roll_back
from runtime.mlflow.releases import read_digest
from tests.bifocal.serving.runs import negate_output
from tests.pipelines.releases import EMBEDDING, ROOT, add_release, register
from tests.rehearsals.year.fleet import Truth

FIRST_DAY, DAYS = date(2027, 1, 3), 7
FIRST_ALBUMS, ALBUMS, ALBUM, COSINE = 200, 12, 5, 0.52
"""Albums of the start and of a week, their images, and the mean cosine of images of an album."""
ALIASES = {"champion": "champion", "previous": "previous"}
KILLED = """
import os, signal, sys
from runtime.mlflow import aliases
from runtime.mlflow import alias_lock, get_version_number, make_champion

move = aliases.move_alias

def move_and_die(*arguments):
    move(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

aliases.move_alias = move_and_die
with alias_lock("bifocal", 60):
    make_champion(get_version_number("bifocal", int(sys.argv[1])), champion="champion", previous="previous",
                  answer="yes", file="promotion/week.json")
"""
"""A promotion that is killed after its first alias."""


@dataclass
class Archive:
    """Images in albums: an image of an album shares a part of its vector with the others."""

    demo: TrainedModel
    truth: Truth
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5005))
    items: list[str] = field(default_factory=list)

    def add(self, name: str, albums: int) -> None:
        """Add albums of new images."""
        pool = np.asarray(self.demo.collection.vectors[:], np.float32)
        mean = pool.mean(axis=0)
        for album in range(albums):
            shared, *own = pool[self.random.integers(len(pool), size=1 + ALBUM)] - mean
            for number, part in enumerate(own):
                vector = mean + np.sqrt(COSINE) * shared + np.sqrt(1 - COSINE) * part
                item = f"{name}/album-{album:02d}/{number}.jpg"
                stored = (vector / np.linalg.norm(vector)).astype(np.float16)
                self.truth.vectors[item] = stored.astype(np.float32)
                self.items.append(item)


@dataclass
class Run:
    """A version with its run folder; ``sign`` is -1 for a model whose vectors are negated: another
    model's would find the worst images.
    """

    folder: Path
    sign: int
    number: int

    @property
    def digest(self) -> str:
        """Hash of the present release."""
        return read_digest(get_version_number("bifocal", self.number))

    def release(self, archive: Archive) -> str:
        """Write the collection and the index of the archive's present images, and release them."""
        for part in (COLLECTION, INDEX):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        identity = ModelIdentity("demo", None, model_hash(self.folder / ONNX))
        vectors, items = archive.truth.vectors, archive.items
        writer = CollectionWriter(
            self.folder / COLLECTION, Description(identity, "/photos", len(vectors[items[0]]), None)
        )
        for row, item in enumerate(items):
            writer.add(Item(item, item, f"{row:064d}", 128, 128), self.sign * vectors[item])
        writer.finish({})
        (self.folder / INDEX).mkdir()
        index_of_collection(Collection.open(self.folder / COLLECTION), None).write(
            self.folder / INDEX
        )
        add_release(self.folder)
        return self.digest

    def promote(self) -> None:
        """Make this version the champion."""
        with alias_lock("bifocal", 60):
            make_champion(
                get_version_number("bifocal", self.number),
                **ALIASES,
                answer="yes",
                file="promotion/w.json",
            )

    def promote_and_die(self) -> None:
        """Make this version the champion in a process that is killed in between."""
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(self.number)], cwd=ROOT, check=False
        )
        assert done.returncode == -9
        remove_lock(
            "bifocal"
        )  # as 'promote --unlock' does; otherwise the lock is free after three minutes


def train(demo: TrainedModel, folder: Path, week: int) -> Run:
    """Register the model of a week: another file each time, every second one with negated
    vectors."""
    sign = -1 if week % 2 else 1
    (folder / EMBEDDING).mkdir(parents=True)
    shutil.copytree(demo.directory / ONNX, folder / ONNX)
    shutil.copy(ROOT / "params.yaml", folder)
    if sign < 0:
        negate_output(folder / ONNX / "text_encoder.onnx")
    graph = onnx.load(folder / ONNX / "text_encoder.onnx")
    graph.doc_string = f"week {week}"
    onnx.save(graph, folder / ONNX / "text_encoder.onnx")
    write_json(
        folder / ONNX / "manifest.json", {"schema_version": 1, "files": hash_files(folder / ONNX)}
    )
    return Run(folder, sign, register(folder))


def rollback() -> None:
    """Make the previous version the champion."""
    with alias_lock("bifocal", 60):
        roll_back("bifocal", **ALIASES, reason="a rehearsal")


def clean(folder: Path, week: int) -> None:
    """Call ``clean --delete`` with the shipped policy, at the simulated time."""
    write_json(folder / "resources.yaml", {"checkpoints": "s3://bucket/checkpoints"})
    options = ["--delete", "--resources", str(folder / "resources.yaml")]
    with patch("components.cluster.clean.datetime") as clock:
        clock.now.return_value = datetime.combine(
            FIRST_DAY + timedelta(days=DAYS * week), time(), UTC
        )
        done = CliRunner().invoke(clean_command, options, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def monitor(run: Run, folder: Path, queries: Sequence[Path]) -> Monitor:
    """Return the monitor with the shipped thresholds, and the sentences of the reference kept over
    promotions."""
    thresholds = load_thresholds().model_copy(update={"keep_queries": True})
    artifacts = Artifacts(run.folder / ONNX, run.folder / COLLECTION, run.folder / INDEX)
    return Monitor(artifacts, folder, Thresholds.of(thresholds.model_dump()), queries)


def sizes(*folders: Path) -> int:
    """Return the bytes of the files below folders."""
    return sum(
        path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()
    )


def captions(demo: TrainedModel) -> tuple[list[str], NDArray[np.float32]]:
    """Return sentences that clients ask for, with their vectors."""
    texts = sorted({demo.collection.captions(row)[-1] for row in range(len(demo.collection))})
    return texts, np.asarray(demo.encode_text(texts), np.float32)
