"""Program of one machine of a TrainJob, with a stand-in for ``torchrun``."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from runtime import artifacts
from runtime.kubeflow import node
from runtime.kubeflow.executor import ExecutorInput
from runtime.s3.storage import Storage

JOB: dict[str, Any] = {
    "folder": "s3://bucket/job",
    "inputs": ["dataset"],
    "values": {"seed": 1, "train_embedding": {"epochs": 2}},
    "code": "abc",
    "processes": 2,
    "secrets": {
        "bifocal-mlflow": {
            "username": "MLFLOW_TRACKING_USERNAME",
            "password": "MLFLOW_TRACKING_PASSWORD",
        }
    },
}


def write_artifact(folder: Path, name: str) -> Path:
    partial = artifacts.open_partial(folder / name, {})
    (partial / "content").write_text(name)
    artifacts.commit(partial, folder / name, {})
    return folder / name


@pytest.fixture
def commands(
    tmp_path: Path, s3: None, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[list[str], dict[str, str]]]:
    """Commands that the node runs, with their environments; each writes a model."""
    started: list[tuple[list[str], dict[str, str]]] = []

    class Torchrun:
        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            started.append((command, env))

        def wait(self) -> int:
            write_artifact(tmp_path / "node", "embedding")
            return 0

    monkeypatch.setattr(subprocess, "Popen", Torchrun)
    previous = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(signal, "signal", lambda number, handler: previous)
    Storage().upload(write_artifact(tmp_path / "launcher", "dataset"), "s3://bucket/job/dataset")
    return started


@pytest.mark.parametrize("rank", ["0", "1"])
def test_every_node_runs_torchrun_and_the_first_uploads_the_model(
    tmp_path: Path,
    commands: list[tuple[list[str], dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    rank: str,
) -> None:
    (tmp_path / "secrets" / "bifocal-mlflow").mkdir(parents=True)
    (tmp_path / "secrets" / "bifocal-mlflow" / "username").write_text("ann\n")
    monkeypatch.setenv("PET_NODE_RANK", rank)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "nobody")
    assert node.main(JOB, tmp_path / "node", tmp_path / "secrets") == 0
    ((command, environment),) = commands
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
    assert command[1:7] == [*torchrun, "-m", "components", "train_embedding"]
    message = ExecutorInput.parse(command[-1])
    assert message.values == JOB["values"]
    assert (message.inputs["dataset"] / "content").read_text() == "dataset"
    assert message.outputs == {"embedding": tmp_path / "node" / "embedding"}
    assert environment["MLFLOW_TRACKING_USERNAME"] == "ann"
    assert environment["BIFOCAL_CHECKPOINTS"] == "s3://bucket/job/checkpoints"
    stored = (
        boto3.client("s3")
        .list_objects_v2(Bucket="bucket", Prefix="job/embedding")
        .get("KeyCount", 0)
    )
    assert (stored > 0) == (rank == "0")


def test_node_that_starts_after_the_end_does_nothing(
    tmp_path: Path, commands: list[tuple[list[str], dict[str, str]]]
) -> None:
    Storage().upload(write_artifact(tmp_path / "other", "embedding"), "s3://bucket/job/embedding")
    assert node.main(JOB, tmp_path / "node", tmp_path / "secrets") == 0
    assert not commands


def test_node_passes_sigterm_on_to_the_training() -> None:
    """It is process 1 of its container, for which the kernel ignores SIGTERM without a handler."""
    handler = "signal.signal(15, lambda *_: sys.exit(143))"
    training = f"import signal, sys, time; {handler}; print('up', flush=True); time.sleep(60)"
    program = (
        "import sys; from runtime.kubeflow import node\n"
        "original = node.subprocess.Popen\n"
        "node.subprocess.Popen = lambda command, env: original([sys.executable, '-c', "
        "command[-1]], env=env)\n"
        f"import os; sys.exit(node._torchrun(1, [{training!r}], os.environ))"
    )
    root = Path(node.__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 143
