"""Stages on a full disk: a one-line error, no incomplete artifact, and the same bytes from the next
run."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bifocal.serialization import read_tensors
from components.__main__ import main
from runtime import artifacts, parameters
from runtime.process import run
from tests.rehearsals.faults.rows import Record, record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 100 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield disk
    # Lazily: this process may still hold a file of a failed stage open.
    subprocess.run(["umount", "--lazy", disk], check=True)


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)


def run_stage(stage: str, folder: Path, params: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command line of a stage in this process, which saves the imports; return its exit
    code."""
    monkeypatch.setattr(
        sys, "argv", ["components", stage, f"--params={params}", f"--artifacts={folder}"]
    )
    with pytest.raises(SystemExit) as end:
        run(main, "components")
    return int(end.value.code or 0)


def check_error(output: str) -> str:
    """Return the error of a stage that failed: one line after the progress, no traceback."""
    *_, error = output.splitlines()
    assert error.startswith("error: ")
    assert "No space left on device" in output
    assert "Traceback" not in output
    return error


def write_params(file: Path, changes: dict[str, object]) -> Path:
    file.write_text(
        yaml.safe_dump(parameters.merge(parameters.load(ROOT / "params.yaml"), changes))
    )
    return file


def test_stage_on_a_full_disk_writes_the_same_artifact_after_the_disk_is_enlarged(
    small_disk: Path,
    tmp_path: Path,
    mlflow_store: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record_property: Record,
) -> None:
    corpus = {"train": 24, "val": 8, "test": 8, "size": 64}
    params = write_params(tmp_path / "params.yaml", {"prepare_dataset": {"corpus": corpus}})
    assert run_stage("prepare_dataset", small_disk, params, monkeypatch) == 1
    error = check_error(capsys.readouterr().err)
    assert not (small_disk / "dataset").exists()
    enlarge(small_disk)
    for folder in (small_disk, tmp_path / "large"):
        assert run_stage("prepare_dataset", folder, params, monkeypatch) == 0
    assert artifacts.artifact_hash(small_disk / "dataset") == artifacts.artifact_hash(
        tmp_path / "large" / "dataset"
    )
    outcome = "one error, no artifact; the same bytes after the disk is enlarged"
    record(
        record_property, "disk full (tmpfs of 100 kB)", "`prepare_dataset`", outcome, error=error
    )


def test_training_resumes_from_the_last_checkpoint_that_fitted_on_the_disk(
    small_disk: Path,
    tmp_path: Path,
    mlflow_store: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record_property: Record,
) -> None:
    # The weights have 18 kB and a checkpoint three times as many: there is no room for a second
    # checkpoint.
    training = {
        "batch_size": 128,
        "learning_rate": 0.01,
        "schedule": "Constant",
        "patience": 3,
        "tolerance": 0.01,
    }
    section = {
        "sorter": {"name": "PositionwiseLSTMSorter", "hidden": 22, "layers": 1},
        "length": 5,
        "training": {**training, "vectors_per_epoch": 256, "epochs": 3},
    }
    params = write_params(tmp_path / "params.yaml", {"pretrain_sorter": section})
    assert run_stage("pretrain_sorter", small_disk, params, monkeypatch) == 1
    error = check_error(capsys.readouterr().err)
    assert not (small_disk / "sorter").exists()
    checkpoint = next((small_disk / "sorter.partial").rglob("last.safetensors"))
    assert len(read_tensors(checkpoint)[1]["history"]) == 1
    enlarge(small_disk)
    assert run_stage("pretrain_sorter", small_disk, params, monkeypatch) == 0
    assert len((small_disk / "sorter" / "history.csv").read_text().splitlines()) == 1 + 3
    outcome = (
        "one error, no artifact; continued from the last checkpoint after the disk is enlarged"
    )
    record(
        record_property, "disk full (tmpfs of 100 kB)", "`pretrain_sorter`", outcome, error=error
    )
