"""Damaged files of a collection, an index and an exported model: one error that names the file."""

import json
import math
import random
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import json_text, plain
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans())
def test_every_value_is_json_that_browsers_read(value: Any, safe: bool) -> None:
    def check(given: Any, read: Any) -> None:
        if isinstance(given, dict):
            assert given.keys() == read.keys()
            for key, entry in given.items():
                check(entry, read[key])
        elif isinstance(given, list):
            for entry, found in zip(given, read, strict=True):
                check(entry, found)
        elif isinstance(given, float) and not math.isfinite(given):
            assert read is None
        elif isinstance(given, datetime):
            assert read == str(given)
        elif type(given) is int and safe and float(given) in (2.0**53, -(2.0**53)):
            assert str(read) == str(given)
        elif type(given) is int and safe and abs(given) > 2**53:
            assert read == str(given)
        else:
            assert (type(read), read) == (type(given), given)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    text = json_text(value, safe=safe)
    check(value, json.loads(text, parse_constant=refuse))
    assert json.loads(json_text(value, safe=safe, ensure_ascii=True)) == json.loads(text)


def test_numbers_of_numpy_and_dataclasses_are_json() -> None:
    measured = Calibration(np.float32(0.5), math.nan, np.int64(2**60), 0, 0, 0, 1, 9)
    found = plain({"a": (measured, Path("b"))}, safe=True)["a"]
    assert list(found[0].values())[:3] == [0.5, None, str(2**60)]
    assert found[1] == "b"
