"""Step train_distributed with the real client of Kubeflow's Trainer, a stub of the Kubernetes API, and moto's S3."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from kubeflow.trainer import KubernetesBackendConfig, TrainerClient
from kubernetes.client import Configuration

from components.cluster.train_distributed import node
from components.cluster.train_distributed.run import run
from components.cluster.train_distributed.spec import COMPONENT, TrainDistributedParams
from components.train_embedding.spec import COMPONENT as TRAIN_EMBEDDING
from runtime import artifacts
from runtime.kfp_executor import ExecutorInput
from runtime.s3.storage import Storage

NAMESPACE = "research"
JOBS = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"
NODE: dict[str, Any] = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "pytorch"}]}}},
    },
}
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [NODE]}}},
}
PARAMS = TrainDistributedParams(
    seed=1,
    values={"epochs": 2},
    nodes=3,
    image="registry/bifocal@sha256:1",
    runtime="torch-distributed",
    folder="s3://bucket/jobs",
    per_node={"cpu": "8", "nvidia.com/gpu": "2"},
    node_selector={"zone": "a"},
    tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    environment={"MLFLOW_TRACKING_URI": "http://mlflow:5000"},
    secrets={"bifocal-s3": {"access_key": "AWS_ACCESS_KEY_ID"}},
    timeout=600,
)


class Kubernetes(BaseHTTPRequestHandler):
    """Stub of the Kubernetes API: stores jobs, and reports each with the status ``final_status``."""

    final_status: str
    jobs: dict[str, Any]
    deleted: list[str]

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        answer: dict[str, Any] | None = None
        if self.command == "POST" and self.path == JOBS:
            answer = json.loads(body)
            self.jobs[answer["metadata"]["name"]] = answer
        elif self.command == "DELETE" and self.path.startswith(JOBS):
            self.deleted.append(name)
            answer = {}
        elif self.path.startswith(JOBS) and name in self.jobs:
            metadata = {"name": name, "namespace": NAMESPACE, "creationTimestamp": "2026-01-01T00:00:00Z"}
            condition = {
                "type": self.final_status,
                "status": "True",
                "reason": "x",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            answer = {**self.jobs[name], "metadata": metadata, "status": {"conditions": [condition]}}
        elif "/clustertrainingruntimes/" in self.path:
            answer = RUNTIME
        elif self.path.endswith("/pods") or "/pods?" in self.path:
            answer = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}
        text = json.dumps(answer if answer is not None else {"message": "not found"}).encode()
        self.send_response(200 if answer is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = respond

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def kubernetes() -> Iterator[tuple[type[Kubernetes], TrainerClient]]:
    handler = type("Stub", (Kubernetes,), {"final_status": "Complete", "jobs": {}, "deleted": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = Configuration(host=f"http://127.0.0.1:{server.server_address[1]}")
    yield handler, TrainerClient(KubernetesBackendConfig(namespace=NAMESPACE, client_configuration=configuration))
    server.shutdown()
    server.server_close()


def write_artifact(folder: Path, name: str) -> Path:
    partial = artifacts.open_partial(folder / name, {})
    (partial / "content").write_text(name)
    artifacts.commit(partial, folder / name, {})
    return folder / name


def train(folder: Path, client: TrainerClient) -> Path:
    inputs = {name: write_artifact(folder, name) for name in COMPONENT.inputs}
    embedding = folder / "embedding.partial"
    embedding.mkdir()
    assert run(PARAMS, **inputs, embedding=embedding, client=client) == {"nodes": 3}
    return embedding


def test_job_has_the_declared_nodes_and_its_model_is_downloaded(
    tmp_path: Path, s3: None, kubernetes: tuple[type[Kubernetes], TrainerClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub, client = kubernetes
    wait = client.wait_for_job_status

    def work(name: str, *arguments: Any, **options: Any) -> Any:
        """Stand in for node 0: download the inputs, upload a model."""
        (variable,) = [v for v in stub.jobs[name]["spec"]["trainer"]["env"] if v["name"] == node.JOB]
        task = json.loads(variable["value"])
        assert task["values"] == {"seed": 1, "train_embedding": {"epochs": 2}}
        for one in task["inputs"]:
            Storage().download(f"{task['folder']}/{one}", tmp_path / "node" / one)
            assert (tmp_path / "node" / one / "content").read_text() == one
        Storage().upload(write_artifact(tmp_path / "node", "embedding"), f"{task['folder']}/embedding")
        return wait(name, *arguments, **options)

    monkeypatch.setattr(client, "wait_for_job_status", work)
    embedding = train(tmp_path, client)
    assert [path.name for path in embedding.iterdir()] == ["content"]
    (spec,) = [job["spec"] for job in stub.jobs.values()]
    assert spec["runtimeRef"]["name"] == "torch-distributed"
    assert spec["activeDeadlineSeconds"] == PARAMS.timeout
    trainer = spec["trainer"]
    assert (trainer["numNodes"], trainer["image"]) == (3, PARAMS.image)
    assert trainer["command"] == ["python", "-m", "components.cluster.train_distributed.node"]
    assert trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == "2"
    (patched,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = patched["template"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == PARAMS.node_selector
    assert pod["tolerations"] == PARAMS.tolerations
    assert pod["volumes"][0]["secret"]["secretName"] == "bifocal-s3"
    assert "test" not in [variable.get("value") for variable in trainer["env"]]
    assert stub.deleted == list(stub.jobs)


def test_failed_job_is_an_error_and_is_deleted(
    tmp_path: Path, s3: None, kubernetes: tuple[type[Kubernetes], TrainerClient]
) -> None:
    stub, client = kubernetes
    stub.final_status = "Failed"
    with pytest.raises(ValueError, match="of 3 nodes failed"):
        train(tmp_path, client)
    assert len(stub.deleted) == 1


@pytest.mark.parametrize("rank", ["0", "1"])
def test_every_node_runs_torchrun_and_the_first_uploads_the_model(
    tmp_path: Path, s3: None, monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    Storage().upload(write_artifact(tmp_path / "launcher", "dataset"), f"s3://bucket/job{rank}/dataset")
    (tmp_path / "secrets" / "bifocal-mlflow").mkdir(parents=True)
    (tmp_path / "secrets" / "bifocal-mlflow" / "username").write_text("ann\n")
    monkeypatch.setenv("PET_NODE_RANK", rank)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "nobody")
    commands: list[list[str]] = []

    def torchrun(command: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        write_artifact(tmp_path / "node", "embedding")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", torchrun)
    job = {
        "folder": f"s3://bucket/job{rank}",
        "inputs": ["dataset"],
        "values": {"seed": 1, "train_embedding": {"epochs": 2}},
        "code": "abc",
        "secrets": {"bifocal-mlflow": {"username": "MLFLOW_TRACKING_USERNAME", "password": "MLFLOW_TRACKING_PASSWORD"}},
    }
    assert node.main(job, tmp_path / "node", tmp_path / "secrets") == 0
    (command,) = commands
    assert command[1:6] == ["-m", "torch.distributed.run", "-m", "components", "train_embedding"]
    message = ExecutorInput.parse(command[-1])
    assert message.values == job["values"]
    assert (message.inputs["dataset"] / "content").read_text() == "dataset"
    assert message.outputs == {"embedding": tmp_path / "node" / "embedding"}
    assert os.environ["MLFLOW_TRACKING_USERNAME"] == "ann"
    stored = boto3.client("s3").list_objects_v2(Bucket="bucket", Prefix=f"job{rank}/embedding").get("KeyCount", 0)
    assert (stored > 0) == (rank == "0")


def test_inputs_and_outputs_are_those_of_train_embedding() -> None:
    assert (COMPONENT.inputs, COMPONENT.outputs) == (TRAIN_EMBEDDING.inputs, TRAIN_EMBEDDING.outputs)
