"""Artifact directories: complete or absent, with a manifest."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import pytest

from runtime.artifacts import (
    artifact_hash,
    check_files,
    commit,
    open_partial,
    read_manifest,
    write_json,
)

FINGERPRINT = {"component": "toy", "parameters": {"size": 1}, "inputs": {}, "code": "abc"}


def write_artifact(final: Path, content: str) -> None:
    partial = open_partial(final, FINGERPRINT)
    (partial / "folder").mkdir(exist_ok=True)
    (partial / "folder" / "file.txt").write_text(content)
    commit(partial, final, FINGERPRINT)


def test_manifest_has_file_hashes_and_parameters(tmp_path: Path) -> None:
    write_artifact(tmp_path / "toy", "one")
    manifest = read_manifest(tmp_path / "toy")
    assert manifest["files"] == {"folder/file.txt": hashlib.sha256(b"one").hexdigest()}
    assert manifest["parameters"] == {"size": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy"]


def test_artifact_hash_depends_on_content_alone(tmp_path: Path) -> None:
    for name, content in (("a", "one"), ("b", "one"), ("c", "two")):
        write_artifact(tmp_path / name, content)
    a, b, c = (artifact_hash(tmp_path / name) for name in "abc")
    assert a == b != c
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (
        tmp_path / "b" / "manifest.json"
    ).read_bytes()


def test_previous_artifact_stays_until_commit(tmp_path: Path) -> None:
    write_artifact(tmp_path / "toy", "one")
    partial = open_partial(tmp_path / "toy", FINGERPRINT)
    (partial / "half.txt").write_text("h")
    assert (tmp_path / "toy" / "folder" / "file.txt").read_text() == "one"
    commit(partial, tmp_path / "toy", FINGERPRINT)
    assert not (tmp_path / "toy" / "folder").exists()


def test_partial_directory_is_kept_only_for_the_same_fingerprint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (open_partial(tmp_path / "toy", FINGERPRINT) / "checkpoint").write_text("half")
    assert (open_partial(tmp_path / "toy", FINGERPRINT) / "checkpoint").read_text() == "half"
    other = FINGERPRINT | {"parameters": {"size": 2}}
    assert capsys.readouterr().err == ""
    assert not (open_partial(tmp_path / "toy", other) / "checkpoint").exists()
    assert (
        "toy.partial: a killed run is discarded, because this run differs: parameters.size 1 -> 2"
        in (capsys.readouterr().err)
    )
    open_partial(tmp_path / "toy", FINGERPRINT)
    assert capsys.readouterr().err == "", "nothing but the fingerprint was there"


def test_commit_deletes_checkpoints(tmp_path: Path) -> None:
    partial = open_partial(tmp_path / "toy", FINGERPRINT)
    (partial / "checkpoints").mkdir()
    (partial / "checkpoints" / "last").write_text("x")
    commit(partial, tmp_path / "toy", FINGERPRINT)
    assert read_manifest(tmp_path / "toy")["files"] == {}


def test_directory_without_a_valid_manifest_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run the stage that writes it"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": 0}))
    with pytest.raises(ValueError, match="schema version 0, expected 1"):
        read_manifest(tmp_path)


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    write_json(tmp_path / "metrics.json", {"recall": nan, "rows": [1.5, (inf, 2)]})
    text = (tmp_path / "metrics.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "recall": None,
        "rows": [1.5, [None, 2]],
    }


def test_files_that_differ_from_the_manifest_are_named(tmp_path: Path) -> None:
    write_artifact(tmp_path / "toy", "one")
    file = tmp_path / "toy" / "folder" / "file.txt"
    check_files(tmp_path / "toy")
    file.with_name("note").write_text("of the user")
    check_files(tmp_path / "toy")
    file.write_text("two")
    with pytest.raises(
        ValueError,
        match=r"file\.txt differs from its hash in manifest\.json: .* after toy wrote it",
    ):
        check_files(tmp_path / "toy")
    file.unlink()
    with pytest.raises(ValueError, match=r"file\.txt is missing, but it is in manifest\.json"):
        check_files(tmp_path / "toy")


def kill(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "call", ["runtime.artifacts.hash_files", "runtime.artifacts.write_json", "os.rename"]
)
def test_killed_commit_keeps_the_work(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_artifact(tmp_path / "toy", "one")
    partial = open_partial(tmp_path / "toy", FINGERPRINT)
    (partial / "checkpoints").mkdir()
    for name in ("result", "checkpoints/last"):
        (partial / name).write_text("days of work")
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(call, kill)
        commit(partial, tmp_path / "toy", FINGERPRINT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    partial = open_partial(tmp_path / "toy", FINGERPRINT)
    if call == "os.rename":  # the journal was written: the next process completes it
        assert read_manifest(tmp_path / "toy")["files"].keys() == {"result"}
        assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == [
            "manifest.json",
            "result",
        ]
    else:
        assert (partial / "checkpoints" / "last").read_text() == "days of work"
        assert read_manifest(tmp_path / "toy")["files"].keys() == {"folder/file.txt"}
        commit(partial, tmp_path / "toy", FINGERPRINT)
        assert (tmp_path / "toy" / "result").read_text() == "days of work"
        check_files(tmp_path / "toy")


def test_full_disk_at_the_manifest_keeps_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = open_partial(tmp_path / "toy", FINGERPRINT)
    (partial / "checkpoint").write_text("days of work")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("runtime.artifacts.write_json", fail)
        with pytest.raises(OSError, match="full"):
            commit(partial, tmp_path / "toy", FINGERPRINT)
    assert (open_partial(tmp_path / "toy", FINGERPRINT) / "checkpoint").is_file()


WRITER = """
import os, sys, time
from pathlib import Path
from runtime.artifacts import open_partial

open_partial(Path(sys.argv[1]), {})
if not os.fork():  # as the workers of a data loader
    print(os.getpid(), flush=True)  # by the child, which then no longer has the lock
time.sleep(60)
"""


def test_artifact_that_another_process_writes_is_refused_until_it_ends(tmp_path: Path) -> None:
    final = tmp_path / "toy"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, final],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        child = int(writer.stdout.readline())
        for fingerprint in ({}, FINGERPRINT):
            with pytest.raises(
                ValueError, match=r"another process writes .*toy\.partial: wait for its end"
            ):
                open_partial(final, fingerprint)
        assert (tmp_path / "toy.partial" / "fingerprint.json").read_text() == "{}"
        writer.kill()
        writer.wait()
    open_partial(final, FINGERPRINT)
    open_partial(final, FINGERPRINT)  # this process may begin again
    os.kill(child, signal.SIGKILL)
