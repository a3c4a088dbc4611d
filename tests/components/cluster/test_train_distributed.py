"""Step train_distributed with the SDK's client of Kubeflow's Trainer, a stand-in for its API, and
moto's S3."""

import json
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import boto3
import pytest

from components.cluster.steps import TRAIN_DISTRIBUTED, TrainDistributedParams
from components.cluster.train_distributed import run
from components.train_embedding.spec import COMPONENT as TRAIN_EMBEDDING
from runtime import artifacts
from runtime.kubeflow import node
from runtime.kubeflow import train_job as trainjob
from runtime.kubeflow.node import SETTINGS
from runtime.s3.storage import Storage
from tests.components.cluster.trainer import NODES, Cluster, end, running_cluster

PARAMS = TrainDistributedParams(
    seed=1, values={"epochs": 2}, nodes=3, image="registry/bifocal@sha256:1"
)


@pytest.fixture
def cluster(s3: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv(SETTINGS, NODES.model_dump_json())
    monkeypatch.setattr(trainjob, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(trainjob, "OUTAGE_SECONDS", 10.0)
    with running_cluster() as running:
        running.on_poll = lambda job: finish(job)
        yield running


def write_artifact(folder: Path, name: str) -> Path:
    partial = artifacts.open_partial(folder / name, {})
    (partial / "content").write_text(name)
    artifacts.commit(partial, folder / name, {})
    return folder / name


def description(job: dict[str, Any]) -> dict[str, Any]:
    """Return what the machines of a job get."""
    (text,) = [
        entry["value"] for entry in job["spec"]["trainer"]["env"] if entry["name"] == node.JOB
    ]
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def finish(job: dict[str, Any]) -> None:
    """Stand in for the machines: upload a model, and end the job."""
    folder = description(job)["folder"]
    boto3.client("s3").put_object(
        Bucket="bucket", Key=f"{folder.removeprefix('s3://bucket/')}/checkpoints/1", Body=b""
    )
    here = Path(os.environ["MODELS"])
    Storage().upload(write_artifact(here, "embedding"), f"{folder}/embedding")
    end(job, "Complete")


UNPLACED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/22 nodes are available: Insufficient nvidia.com/gpu",
}
NO_IMAGE = {
    "name": "node",
    "image": "x",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
}


def train(folder: Path, cluster: Cluster) -> list[str]:
    """Run the step on new disks, and return the files of its model."""
    inputs = {name: write_artifact(folder, name) for name in TRAIN_DISTRIBUTED.inputs}
    embedding = folder / "embedding.partial"
    embedding.mkdir(exist_ok=True)
    os.environ["MODELS"] = str(folder / "node")
    assert run(PARAMS, **inputs, embedding=embedding, client=cluster.client()) == {"nodes": 3}
    return [path.name for path in embedding.iterdir()]


def keys() -> set[str]:
    """Return the names below the folder of the job."""
    listed = boto3.client("s3").list_objects_v2(Bucket="bucket", Prefix="jobs/").get("Contents", [])
    return {entry["Key"].split("/")[2] for entry in listed}


def test_job_has_the_declared_nodes_and_its_model_is_downloaded(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    monkeypatch.setenv("KFP_RUN_ID", "run-1")
    jobs: list[dict[str, Any]] = []

    def work(job: dict[str, Any]) -> None:
        jobs.append(job)
        assert keys() == {"dataset", "features", "text", "sorter"}
        finish(job)

    cluster.on_poll = work
    assert train(tmp_path, cluster) == ["content"]
    (job,) = jobs
    assert cluster.deleted == [job["metadata"]["name"]]
    assert keys() == {"embedding"}  # the inputs and the checkpoints are deleted
    assert job["metadata"]["labels"] == NODES.labels
    spec = job["spec"]
    assert spec["runtimeRef"]["name"] == "torch-distributed"
    assert spec["activeDeadlineSeconds"] == NODES.timeout
    trainer = spec["trainer"]
    assert (trainer["numNodes"], trainer["image"]) == (3, PARAMS.image)
    assert trainer["command"] == ["python", "-m", "runtime.kubeflow.node"]
    assert trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == "2"
    variables = {entry["name"]: entry["value"] for entry in trainer["env"]}
    assert variables.keys() == {"MLFLOW_TRACKING_URI", "KFP_RUN_ID", node.JOB}  # no secret
    assert variables["KFP_RUN_ID"] == "run-1"
    (patched,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"][
        "replicatedJobs"
    ]
    template = patched["template"]["spec"]["template"]
    assert template["metadata"] == {"labels": {"team": "search"}, "annotations": NODES.annotations}
    pod = template["spec"]
    assert pod["nodeSelector"] == NODES.node_selector
    assert pod["tolerations"] == NODES.tolerations
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["securityContext"] == {"runAsUser": 12345}
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == NODES.node_affinity
    secret, corpora, memory = pod["volumes"]
    assert secret["secret"]["secretName"] == "bifocal-s3"
    assert corpora["persistentVolumeClaim"]["claimName"] == "corpora"
    assert memory["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert mounts == ["/secrets/bifocal-s3", "/corpora", "/dev/shm"]


def test_failed_job_is_an_error_and_is_deleted(tmp_path: Path, cluster: Cluster) -> None:
    cluster.on_poll = lambda job: end(job, "Failed")
    with pytest.raises(
        ValueError, match=r"TrainJob bifocal-\w{16} failed \(Test\); end of the log of node 0:"
    ):
        train(tmp_path, cluster)
    assert cluster.deleted == cluster.created


def test_a_machine_that_lacks_memory_is_named_with_its_peak_and_its_limit(
    tmp_path: Path, cluster: Cluster
) -> None:
    memory = "memory: peak 7.98 GiB, limit 8.00 GiB"
    end_of_container = {"exitCode": 137, "reason": "OOMKilled", "message": memory}
    status = {
        "name": "node",
        "image": "x",
        "imageID": "x",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": end_of_container},
    }
    cluster.pods = [{"metadata": {"name": "node-0-1"}, "status": {"containerStatuses": [status]}}]
    cluster.on_poll = lambda job: end(job, "Failed")
    with pytest.raises(
        ValueError, match=rf"failed \(Test, node-0-1: OOMKilled \(exit code 137\): {memory}\)"
    ):
        train(tmp_path, cluster)


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        (
            [{"conditions": [UNPLACED]}],
            "Unschedulable: 0/22 nodes are available: Insufficient nvidia.com/gpu",
        ),
        ([{"containerStatuses": [NO_IMAGE]}], "ImagePullBackOff no such image"),
        ([], "FailedCreate: exceeded quota"),
        ([{"phase": "Running"}], "FailedCreate: exceeded quota"),
    ],
)
def test_a_job_without_a_place_says_why_and_ends(
    tmp_path: Path,
    cluster: Cluster,
    pods: list[dict[str, Any]],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(trainjob, "SILENT_SECONDS", 0.0)
    monkeypatch.setenv(SETTINGS, NODES.model_copy(update={"queue_timeout": 1}).model_dump_json())

    def wait(job: dict[str, Any]) -> None:
        event = {"name": f"{job['metadata']['name']}-node-0", "kind": "Job"}
        cluster.pods = [
            {"metadata": {"name": "node-0-1"}, "status": {"phase": "Pending", **pod}}
            for pod in pods
        ]
        cluster.events = [
            {"type": "Warning", "reason": "FailedCreate", "message": "exceeded quota",
             "metadata": {"name": "e"}, "involvedObject": event}
        ]  # fmt: skip

    cluster.on_poll = wait
    with pytest.raises(TimeoutError, match="found no place within 1 seconds") as error:
        train(tmp_path, cluster)
    assert reason in str(error.value)
    assert capsys.readouterr().err.count(f"waits: {reason}") == 1
    assert cluster.deleted == cluster.created


def test_a_job_whose_machines_have_succeeded_is_complete_with_a_pod_on_a_lost_node(
    tmp_path: Path, cluster: Cluster
) -> None:
    def lose(job: dict[str, Any]) -> None:
        finish(job)
        del job["status"]
        phases = ["Running", *["Succeeded"] * job["spec"]["trainer"]["numNodes"]]
        cluster.pods = [
            {"metadata": {"name": str(number)}, "status": {"phase": phase}}
            for number, phase in enumerate(phases)
        ]

    cluster.on_poll = lose
    train(tmp_path, cluster)
    assert cluster.deleted == cluster.created


def test_job_that_takes_too_long_is_deleted(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTINGS, NODES.model_copy(update={"timeout": 1}).model_dump_json())
    cluster.on_poll = lambda job: None
    with pytest.raises(TimeoutError, match="did not end within 1 seconds, and was deleted"):
        train(tmp_path, cluster)
    assert cluster.deleted == cluster.created


@pytest.mark.parametrize("fault", [503, 429, 401, 0])
def test_errors_of_the_api_neither_end_nor_delete_the_job(
    tmp_path: Path, cluster: Cluster, fault: int
) -> None:
    polls: list[int] = []

    def work(job: dict[str, Any]) -> None:
        assert not cluster.deleted
        polls.append(1)
        if len(polls) == 1:
            cluster.faults = [fault] * 2
        else:
            finish(job)
            cluster.faults = [fault]  # of the deletion

    cluster.faults = [200, fault]  # the creation fails, too
    cluster.on_poll = work
    assert train(tmp_path, cluster) == ["content"]
    assert len(cluster.created) == len(cluster.deleted) == 1


def test_outage_of_the_api_leaves_the_job_and_the_next_attempt_adopts_it(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainjob, "OUTAGE_SECONDS", 0.05)

    def fail(job: dict[str, Any]) -> None:
        cluster.faults = [503] * 1000

    cluster.on_poll = fail
    with pytest.raises(OSError, match="was not deleted: start the step again"):
        train(tmp_path, cluster)
    cluster.faults, cluster.on_poll = [], finish
    assert train(tmp_path / "retry", cluster) == ["content"]
    assert cluster.created == cluster.deleted
    assert len(cluster.created) == 1


def test_rejected_job_is_an_error_at_once(tmp_path: Path, cluster: Cluster) -> None:
    cluster.faults = [200, 403]
    with pytest.raises(ValueError, match=r"was rejected: .*403"):
        train(tmp_path, cluster)


def test_killed_step_adopts_its_job(tmp_path: Path, cluster: Cluster) -> None:
    cluster.on_poll = lambda job: None  # it runs on
    waiting = get_context("fork").Process(target=train, args=(tmp_path / "pod1", cluster))
    waiting.start()
    deadline = time.monotonic() + 60
    while not cluster.created and time.monotonic() < deadline:
        time.sleep(0.05)
    assert waiting.pid is not None
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.join(60)
    assert cluster.jobs.keys() == set(cluster.created)
    cluster.on_poll = finish
    assert train(tmp_path / "pod2", cluster) == ["content"]
    assert len(cluster.created) == 1
    assert cluster.deleted == cluster.created


def test_failed_job_of_a_killed_step_is_replaced_when_it_is_gone(
    tmp_path: Path, cluster: Cluster
) -> None:
    def fail_first(job: dict[str, Any]) -> None:
        if len(cluster.created) == 2:
            finish(job)

    cluster.on_poll = lambda job: os.kill(os.getpid(), signal.SIGUSR1)
    previous = signal.signal(signal.SIGUSR1, _stop)
    try:
        with pytest.raises(_StoppedError):
            train(tmp_path / "pod1", cluster)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    end(cluster.jobs[cluster.created[0]], "Failed")
    cluster.on_poll, cluster.polls_until_gone = fail_first, 2
    assert train(tmp_path / "pod2", cluster) == ["content"]
    assert len(cluster.created) == 2
    assert cluster.created[0] == cluster.created[1]


class _StoppedError(Exception):
    pass


def _stop(number: int, frame: Any) -> None:
    raise _StoppedError


def test_step_that_lost_its_output_takes_the_model_without_a_job(
    tmp_path: Path, cluster: Cluster
) -> None:
    train(tmp_path / "pod1", cluster)
    assert train(tmp_path / "pod2", cluster) == ["content"]
    assert len(cluster.created) == 1


def test_inputs_and_outputs_are_those_of_train_embedding() -> None:
    assert (TRAIN_DISTRIBUTED.inputs, TRAIN_DISTRIBUTED.outputs) == (
        TRAIN_EMBEDDING.inputs,
        TRAIN_EMBEDDING.outputs,
    )
