"""A disk that fills up under a stage: one clear message, no half artifact, the same bytes from the next run."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from components import artifact, parameters

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


def prepare(folder: Path, params: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "components", "prepare_dataset", f"--params={params}", f"--artifacts={folder}"]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{params.parent}/mlflow.db", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_full_disk_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    values = parameters.overlay(
        parameters.read(ROOT / "params.yaml"),
        {"prepare_dataset": {"source": {"train": 24, "val": 8, "test": 8, "size": 64}}},
    )
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump(values))
    full = prepare(small_disk, params)
    assert full.returncode == 1
    assert "No space left on device" in full.stderr
    assert "Traceback" not in full.stderr
    assert not (small_disk / "dataset").exists()
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    for folder in (small_disk, tmp_path / "roomy"):
        done = prepare(folder, params)
        assert done.returncode == 0, done.stderr
    assert artifact.artifact_hash(small_disk / "dataset") == artifact.artifact_hash(tmp_path / "roomy" / "dataset")
