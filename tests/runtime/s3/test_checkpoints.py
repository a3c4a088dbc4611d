"""Checkpoints on S3: a stage that is killed resumes on another machine, which has none of its
files."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path

import boto3
import pytest
from broken_s3 import Faults

from bifocal.durable import complete
from runtime.s3.checkpoints import FOLDER, INDEX, MINUTES, RemoteCheckpoints
from runtime.s3.uri import StorageError
from runtime.spec import Params
from runtime.stage import Job, run_stage
from tests.runtime.s3.toy_training import EPOCHS, STEPS, toy, train


def keys() -> list[str]:
    listed = boto3.client("s3").list_objects_v2(Bucket="bucket")
    return [entry["Key"] for entry in listed.get("Contents", [])]


def weights(folder: Path) -> bytes:
    return (folder / "model" / "weights").read_bytes()


@pytest.fixture
def copies(s3: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, "s3://bucket/checkpoints")
    monkeypatch.setenv(MINUTES, "0")


@pytest.mark.slow
def test_killed_stage_resumes_on_another_machine(
    copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_s3:
        without_s3.delenv(FOLDER)
        assert train(tmp_path / "whole") == EPOCHS * STEPS
    killed = subprocess.run(
        [sys.executable, "-m", "tests.runtime.s3.toy_training", tmp_path / "pod1"],
        capture_output=True,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert STEPS <= EPOCHS * STEPS - train(tmp_path / "pod2") <= 2 * STEPS
    assert weights(tmp_path / "pod2") == weights(tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "pod2").rglob("*")) == [
        "manifest.json",
        "model",
        "weights",
    ]


@pytest.mark.parametrize("way", ["SIGTERM", "error"])
def test_last_step_is_uploaded_at_sigterm_and_after_an_error(
    copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def stop(step: int) -> None:
        if step == STEPS + 2 and way == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        elif step == STEPS + 2:
            raise ValueError("stopped")

    monkeypatch.setenv(MINUTES, "60")
    with pytest.raises((SystemExit, ValueError)):
        train(tmp_path / "pod1", stop)
    finished = (
        STEPS + 2 if way == "SIGTERM" else STEPS
    )  # an error repeats the steps since the last checkpoint
    assert train(tmp_path / "pod2") == EPOCHS * STEPS - finished


def test_checkpoints_are_deleted_when_another_stage_reads_the_artifact(
    copies: None, tmp_path: Path
) -> None:
    train(tmp_path)
    # The artifact may still be lost: Kubeflow uploads it when the process has ended.
    assert any(key.endswith(INDEX) for key in keys())
    run_stage(
        Job(
            toy("read_toy", inputs=("model",)),
            Params(seed=0),
            {"model": tmp_path / "model"},
            {},
            {},
        )
    )
    assert keys() == []


def test_stage_with_other_parameters_starts_from_nothing(copies: None, tmp_path: Path) -> None:
    train(tmp_path / "pod1")
    assert train(tmp_path / "pod2", seed=1) == EPOCHS * STEPS


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "new").write_text(text)
        (folder / "new").rename(folder / name)


def test_copy_has_only_the_current_files_and_changed_files_are_uploaded_alone(
    faults: Faults, tmp_path: Path
) -> None:
    store = RemoteCheckpoints("s3://bucket/run", {"model": tmp_path / "one"}, seconds=0)
    write(tmp_path / "one" / "first", best="1", last="1")
    store(is_last=True)
    faults.seen.clear()
    write(tmp_path / "one" / "first", last="2")
    store(is_last=True)
    assert [path.rsplit("/", 1)[1] for method, path in faults.seen if method == "PUT"] == [
        "3",
        INDEX,
    ]
    store.close(failed=False)
    assert len(keys()) == 3
    RemoteCheckpoints("s3://bucket/run", {"model": tmp_path / "two"}, seconds=0).restore()
    restored = {path.name: path.read_text() for path in (tmp_path / "two" / "first").iterdir()}
    assert restored == {"best": "1", "last": "2"}


def test_interrupted_upload_leaves_the_previous_copy(faults: Faults, tmp_path: Path) -> None:
    first = RemoteCheckpoints("s3://bucket/run", {"model": tmp_path / "one"}, seconds=0)
    write(tmp_path / "one", best="1", last="1")
    first(is_last=True)
    faults.planned = {"PUT": ["ok", "ok", *["503"] * 99]}  # the index is the last
    write(tmp_path / "one", best="2", last="2")
    first(is_last=True)
    second = RemoteCheckpoints("s3://bucket/run", {"model": tmp_path / "two"}, seconds=0)
    second.restore()
    assert (tmp_path / "two" / "best").read_text() == (tmp_path / "two" / "last").read_text() == "1"


def test_killed_restore_is_completed(
    faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one output has its checkpoints and the other has none, and a second restore does
    nothing."""

    def folders(pod: str) -> dict[str, Path]:
        return {name: tmp_path / pod / f"{name}.partial" / "checkpoints" for name in ("a", "b")}

    for folder in folders("one").values():
        write(folder, last="1")
    RemoteCheckpoints("s3://bucket/run", folders("one"), seconds=0)(is_last=True)
    replace, rename = Path.replace, Path.rename

    def stop(move: Callable[[Path, Path], Path], source: Path, target: Path) -> Path:
        if target == folders("two")["b"]:
            raise KeyboardInterrupt
        return move(source, target)

    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", partialmethod(lambda *given: stop(replace, *given)))
        killed.setattr(Path, "rename", partialmethod(lambda *given: stop(rename, *given)))
        with pytest.raises(KeyboardInterrupt):
            RemoteCheckpoints("s3://bucket/run", folders("two"), seconds=0).restore()
    complete(tmp_path / "two")  # as the stage does when it opens its outputs
    RemoteCheckpoints("s3://bucket/run", folders("two"), seconds=0).restore()
    assert [(folder / "last").read_text() for folder in folders("two").values()] == ["1", "1"]


def test_unreadable_copy_is_an_error_and_not_a_start_from_nothing(
    faults: Faults, tmp_path: Path
) -> None:
    faults.planned = {"GET": ["503"] * 99}
    with pytest.raises(StorageError, match="s3://bucket/run"):
        RemoteCheckpoints("s3://bucket/run", {"model": tmp_path}, seconds=0).restore()


def test_minutes_must_be_a_number(
    copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MINUTES, "ten")
    with pytest.raises(ValueError, match="BIFOCAL_CHECKPOINT_MINUTES is 'ten': expected minutes"):
        train(tmp_path)
