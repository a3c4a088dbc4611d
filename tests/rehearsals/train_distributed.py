"""Training on two machines, one of which is killed: the model equals an undisturbed training's, bit
for bit.

Each machine is a process with a disk of its own; only S3 is shared. 'make faults' runs this file:
it takes a minute.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest

from bifocal.datasets import read_dataset
from bifocal.features import FeatureWriter
from components.cluster.steps import TrainDistributedParams
from components.cluster.train_distributed import run
from components.train_embedding.spec import COMPONENT as TRAIN_EMBEDDING
from runtime import artifacts, parameters
from runtime.identity import image_key
from runtime.kubeflow import train_job as trainjob
from runtime.kubeflow.node import SETTINGS
from runtime.process import processes_of_one_machine
from tests.components.cluster.pods import ROOT, Pods
from tests.components.cluster.trainer import NODES, running_cluster
from tests.components.train_embedding.conftest import Scened, scened
from tests.components.train_embedding.section import PHASE, SECTION
from tests.mlflow_server import free_port

__all__ = ["scened"]  # a fixture of this file, too
VALUES: dict[str, Any] = (
    parameters.load(ROOT / "params.yaml")["train_embedding"]
    | SECTION
    | {"phases": [PHASE | {"epochs": 6}], "checkpoint_every_seconds": 0.0}
)


@pytest.fixture(scope="module")
def inputs(scened: Scened, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Complete artifacts of small scenes with random features."""
    written = scened(160, 20)
    random = np.random.default_rng(0)
    with FeatureWriter(
        written["features"], regions=2, dim=24, metadata={}, images_per_file=64
    ) as writer:
        for image_id in read_dataset(written["dataset"]).images["image_id"]:
            writer.add(str(image_id), random.normal(size=(2, 24)).astype(np.float32))
    folder = tmp_path_factory.mktemp("inputs")
    for name, path in written.items():
        partial = artifacts.open_partial(folder / name, {})
        shutil.copytree(path, partial, dirs_exist_ok=True)
        empty: dict[str, Any] = {
            key: {} for key in ("parameters", "inputs", "arguments", "metrics")
        }
        artifacts.commit(partial, folder / name, {"component": name, "code": "", **empty})
    return {name: folder / name for name in written}


@pytest.fixture(autouse=True)
def cpu(s3: None, mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)


def train_on_one_machine(inputs: dict[str, Path], folder: Path) -> Path:
    """Train with the command that Kubeflow gets for two GPUs; on a machine without GPUs, two
    processes of gloo."""
    message = {
        "inputs": {
            "parameterValues": {
                "parameters": json.dumps({"seed": 0, "train_embedding": VALUES}),
                "code": image_key(TRAIN_EMBEDDING),
            },
            "artifacts": {
                name: {"artifacts": [{"name": name, "uri": str(path)}]}
                for name, path in inputs.items()
            },
        },
        "outputs": {
            "artifacts": {
                "embedding": {
                    "artifacts": [{"name": "embedding", "uri": str(folder / "embedding")}]
                }
            },
            "outputFile": str(folder / "output.json"),
        },
    }
    command = [sys.executable, *processes_of_one_machine(2), "-m", "components", "train_embedding"]
    done = subprocess.run(
        [*command, "--executor-input", json.dumps(message)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "output.json").read_text())["artifacts"]["embedding"]
    return folder / "embedding"


def test_killed_machine_costs_no_bit_of_the_model(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train_on_one_machine(inputs, tmp_path / "one")
    monkeypatch.setenv("BIFOCAL_CHECKPOINT_MINUTES", "0")
    settings = {"processes": 1, "environment": ["BIFOCAL_CHECKPOINT_MINUTES"], "secrets": {}}
    monkeypatch.setenv(SETTINGS, NODES.model_copy(update=settings).model_dump_json())
    monkeypatch.setattr(trainjob, "POLL_SECONDS", 0.1)
    killed: list[int] = []

    def kill_after_a_checkpoint() -> int | None:
        listed = (
            boto3.client("s3").list_objects_v2(Bucket="bucket", Prefix="jobs/").get("Contents", [])
        )
        if killed or not any(entry["Key"].endswith("index.json") for entry in listed):
            return None
        killed.append(1)
        return 1

    pods = Pods(tmp_path / "pods", kill_after_a_checkpoint)
    params = TrainDistributedParams(seed=0, values=VALUES, nodes=2, image="gpu@sha256:1")
    (tmp_path / "embedding").mkdir()
    with running_cluster() as cluster:
        cluster.on_poll = pods
        try:
            run(params, embedding=tmp_path / "embedding", client=cluster.client(), **inputs)
        finally:
            pods.stop()
    logs = {
        path.parent.name: path.read_text() for path in sorted((tmp_path / "pods").glob("*/log.txt"))
    }
    assert killed, logs
    assert pods.restarts >= 1
    assert any("resuming at epoch" in text for text in logs.values()), logs
    names = sorted(path.name for path in expected.iterdir() if path.name != artifacts.MANIFEST)
    assert sorted(path.name for path in (tmp_path / "embedding").iterdir()) == names
    for name in names:
        assert (tmp_path / "embedding" / name).read_bytes() == (expected / name).read_bytes(), name


@pytest.mark.parametrize("artifact", ["features", "text", "dataset"])
def test_a_damaged_copy_on_the_second_machine_ends_both(
    inputs: dict[str, Path], tmp_path: Path, artifact: str
) -> None:
    (tmp_path / "recipe.yaml").write_text(parameters.dump_yaml({"train_embedding": VALUES}))
    machines = {**os.environ, "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    machines["MASTER_PORT"], processes = str(free_port()), []
    for rank in "01":
        shutil.copytree(inputs["dataset"].parent, tmp_path / rank, symlinks=True)
        if rank == "1":
            name = min(artifacts.read_manifest(tmp_path / rank / artifact)["files"])
            content = (tmp_path / rank / artifact / name).read_bytes()
            (tmp_path / rank / artifact / name).write_bytes(content[:-1] + b"x")
        command = [sys.executable, "-m", "components", "train_embedding"]
        command += ["--recipe", tmp_path / "recipe.yaml", "--artifacts", tmp_path / rank]
        processes.append(
            subprocess.Popen(
                command, cwd=ROOT, env=machines | {"RANK": rank}, stderr=subprocess.PIPE, text=True
            )
        )
    for process in processes:
        error = process.communicate(timeout=120)[1]
        assert process.returncode == 1
        assert "rank 1 of the training: " in error
        assert "differs from its hash in manifest.json" in error
