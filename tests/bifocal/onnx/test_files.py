"""Damaged files of a collection, an index and an exported model: one error that names the file."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bifocal.onnx.encoders import Embedder
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.index.build import IndexSettings, build_index, index_of_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, TrainedModel

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "other": lambda content: random.Random(0).randbytes(len(content)),
    "changed": lambda content: content[:8] + bytes([content[8] ^ 0xFF]) + content[9:],
    "renamed": lambda content: content.replace(b'"', b'"x', 1),
}


@pytest.fixture(scope="module")
def run(demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo with biases, a calibration and an index of faiss."""
    run = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(demo.directory / "artifacts", run / "artifacts")
    shutil.rmtree(run / INDEX)
    (run / INDEX).mkdir()
    exact = index_of_collection(Collection.open(run / COLLECTION), None)
    built = build_index(
        exact, IndexSettings(factory="IVF4,Flat"), exact.vectors[:8].astype(np.float32)
    )
    built.bias = np.zeros(len(built), np.float32)
    built.calibration = Calibration(
        -4.0, 10.0, 5.0, 0.5, 0.0, 0.0, 1.0, 100, names=np.ones((4, 2), np.float32)
    )
    built.write(run / INDEX)
    return run


def open_collection(folder: Path) -> None:
    assert len(Collection.open(folder).vectors[:])


@pytest.mark.parametrize(
    ("part", "read"),
    [(COLLECTION, open_collection), (INDEX, SearchIndex.open), (ONNX, Embedder)],
    ids=lambda part: "",
)
def test_a_damaged_file_is_named_by_one_error(
    run: Path, part: Path, read: Callable[[Path], object]
) -> None:
    files = [
        file for file in (run / part).rglob("*") if file.is_file() and file.parent.name != "images"
    ]
    found = set[tuple[str, str]]()
    for file in files:
        whole = file.read_bytes()
        for name, damage in DAMAGES.items():
            replace(file, damage(whole))
            try:
                read(run / part)
            except (ValueError, OSError) as error:
                message = str(error)
                found.add((file.name, name))
            else:
                # bits of a vector or of weights have no sum here: 'serve' compares the manifest's
                message = file.name
            assert file.name in message
        replace(file, whole)
    read(run / part)
    expected = {file.name for file in files} - {
        "rejected.parquet",
        "manifest.json",
        "backbone.onnx",
        "localizer.json",
    }
    assert {name for name, damage in found if damage == "empty"} >= expected
    assert {name for name, damage in found if damage == "cut"} >= expected


def replace(file: Path, content: bytes) -> None:
    """Replace a file by a rename: others may map it."""
    aside = file.with_name("aside")
    aside.write_bytes(content)
    aside.replace(file)
