"""A disk that fills up under a stage: one clear message, no half artifact, the same bytes from the next run."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bifocal.checkpoint import read_tensors
from components import catalog
from components.pretrain_sorter.spec import COMPONENT
from runtime import artifacts, parameters
from runtime.stage import run_stage

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
    subprocess.run(["umount", disk], check=True)


def run(stage: str, folder: Path, params: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "components", stage, f"--params={params}", f"--artifacts={folder}"]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{params.parent}/mlflow.db", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def check_one_line(full: subprocess.CompletedProcess[str]) -> None:
    assert full.returncode == 1
    assert "No space left on device" in full.stderr
    assert "Traceback" not in full.stderr


def test_a_full_disk_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    values = parameters.merge(
        parameters.load(ROOT / "params.yaml"),
        {"prepare_dataset": {"corpus": {"train": 24, "val": 8, "test": 8, "size": 64}}},
    )
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump(values))
    full = run("prepare_dataset", small_disk, params)
    check_one_line(full)
    assert not (small_disk / "dataset").exists()
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    for folder in (small_disk, tmp_path / "roomy"):
        done = run("prepare_dataset", folder, params)
        assert done.returncode == 0, done.stderr
    assert artifacts.artifact_hash(small_disk / "dataset") == artifacts.artifact_hash(tmp_path / "roomy" / "dataset")


def test_a_training_goes_on_from_the_last_checkpoint_that_fitted(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    # The weights are 18 kB, a checkpoint three times that: the second does not fit beside the first.
    section = {"sorter": {"hidden": 22}, "length": 5, "vectors_per_epoch": 256, "epochs": 3}
    values = parameters.merge(parameters.load(ROOT / "params.yaml"), {"pretrain_sorter": section})
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump(values))
    full = run("pretrain_sorter", small_disk, params)
    check_one_line(full)
    assert not (small_disk / "sorter").exists()
    checkpoint = next((small_disk / "sorter.partial").rglob("last.safetensors"))
    assert len(read_tensors(checkpoint)[1]["history"]) == 1
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    checked = parameters.validate(values, catalog.configurable_components().values())["pretrain_sorter"]
    run_stage(COMPONENT, checked, {}, {"sorter": small_disk / "sorter"}, values)
    assert len((small_disk / "sorter" / "history.csv").read_text().splitlines()) == 1 + 3
