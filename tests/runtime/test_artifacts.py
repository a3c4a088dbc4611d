"""An artifact is complete or absent, and says what it was made from."""

import hashlib
import json
from pathlib import Path

import pytest

from runtime.artifacts import artifact_hash, begin, code_hash, commit, read_manifest

KEY = {"component": "toy", "parameters": {"size": 1}, "inputs": {}, "code": "abc"}


def make(final: Path, content: str) -> None:
    partial = begin(final, KEY)
    (partial / "folder").mkdir(exist_ok=True)
    (partial / "folder" / "file.txt").write_text(content)
    commit(partial, final, KEY)


def test_an_artifact_has_a_manifest(tmp_path: Path) -> None:
    make(tmp_path / "toy", "one")
    manifest = read_manifest(tmp_path / "toy")
    assert manifest["files"] == {"folder/file.txt": hashlib.sha256(b"one").hexdigest()}
    assert manifest["parameters"] == {"size": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy"]


def test_the_same_content_has_the_same_hash(tmp_path: Path) -> None:
    for name, content in (("a", "one"), ("b", "one"), ("c", "two")):
        make(tmp_path / name, content)
    a, b, c = (artifact_hash(tmp_path / name) for name in "abc")
    assert a == b != c
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()


def test_the_former_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    make(tmp_path / "toy", "one")
    partial = begin(tmp_path / "toy", KEY)
    (partial / "half.txt").write_text("h")
    assert (tmp_path / "toy" / "folder" / "file.txt").read_text() == "one"
    commit(partial, tmp_path / "toy", KEY)
    assert not (tmp_path / "toy" / "folder").exists()


def test_a_killed_run_is_gone_on_with_only_if_nothing_changed(tmp_path: Path) -> None:
    (begin(tmp_path / "toy", KEY) / "checkpoint").write_text("half")
    assert (begin(tmp_path / "toy", KEY) / "checkpoint").read_text() == "half"
    assert not (begin(tmp_path / "toy", KEY | {"parameters": {"size": 2}}) / "checkpoint").exists()


def test_checkpoints_are_left_out(tmp_path: Path) -> None:
    partial = begin(tmp_path / "toy", KEY)
    (partial / "checkpoints").mkdir()
    (partial / "checkpoints" / "last").write_text("x")
    commit(partial, tmp_path / "toy", KEY)
    assert read_manifest(tmp_path / "toy")["files"] == {}


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run the stage that writes it"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": 0}))
    with pytest.raises(ValueError, match="schema version 0, expected 1"):
        read_manifest(tmp_path)


def test_the_code_hash_sees_every_source_file(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("a")
    first = code_hash(tmp_path, ["package"])
    (tmp_path / "package" / "__pycache__").mkdir()
    (tmp_path / "package" / "__pycache__" / "a.pyc").write_text("compiled")
    assert code_hash(tmp_path, ["package"]) == first
    (tmp_path / "package" / "a.py").write_text("b")
    assert code_hash(tmp_path, ["package"]) != first
