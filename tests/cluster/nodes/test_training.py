"""A training by Kubeflow's Trainer on two nodes: its bytes, a node that is cut off, machines that
find no place."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest

from runtime import artifacts
from runtime.kubeflow import train_job
from tests.cluster.nodes.conftest import BUCKET
from tests.cluster.nodes.image import STEPS
from tests.cluster.nodes.kubectl import Namespace, kubectl
from tests.cluster.nodes.start import NODES, Node, until
from tests.cluster.nodes.training import Step
from tests.rehearsals.train_distributed import inputs, scened, train_on_one_machine

__all__ = ["inputs", "scened"]  # fixtures of this file, too
pytestmark = [pytest.mark.usefixtures("services"), pytest.mark.timeout(0)]
MACHINES = "jobset.sigs.k8s.io/replicatedjob-name=node"
RANK = re.compile(r"-node-0-(\d)-")
GPU = "nvidia.com/gpu"
HALF = "1100m"  # more than half of a node of two processors
FIRST, SECOND = NODES


@pytest.fixture
def step(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    monkeypatch.setattr(train_job, "POLL_SECONDS", 1.0)
    return Step(namespace, tmp_path, monkeypatch)


@pytest.fixture
def expected(services: None, inputs: dict[str, Path], tmp_path: Path) -> dict[str, bytes]:
    """Files of the model of two processes on one machine."""
    return files(train_on_one_machine(inputs, tmp_path / "one"))


def files(model: Path) -> dict[str, bytes]:
    """Return the files of a model, without the manifest."""
    return {
        path.name: path.read_bytes() for path in model.iterdir() if path.name != artifacts.MANIFEST
    }


@contextmanager
def beside(action: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run an action beside the block, until its event is set; raise what it raises."""
    ended, errors = threading.Event(), []

    def guarded() -> None:
        try:
            action(ended)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[0]


class Places:
    """Nodes of the machines of a namespace, by rank, while a block runs."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.nodes: dict[str, set[str]] = {}

    def __call__(self, ended: threading.Event) -> None:
        while not ended.wait(0.5):
            for pod, node in self.namespace.pods(MACHINES).items():
                found = RANK.search(pod)
                assert found is not None
                self.nodes.setdefault(found[1], set()).add(node)


def test_two_nodes_give_the_bytes_of_two_processes(
    step: Step, inputs: dict[str, Path], expected: dict[str, bytes]
) -> None:
    places = Places(step.namespace)
    with beside(places):
        model = step(inputs, cpu=HALF)
    assert sorted(places.nodes) == ["0", "1"]
    assert set.union(*places.nodes.values()) == {FIRST.name, SECOND.name}
    assert files(model) == expected


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ({"cpu": "64"}, "Insufficient cpu"),
        ({"node_selector": {"disk": "fast"}}, "didn't match Pod's node affinity/selector"),
        ({"gpu": {"type": GPU, "count": 1}}, f"Insufficient {GPU}"),
    ],
)
def test_machines_without_a_place_are_named_and_end_the_step(
    step: Step,
    inputs: dict[str, Path],
    machine: dict[str, Any],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    check_no_place(step, inputs, machine, reason, monkeypatch, capfd)


@pytest.mark.parametrize("machines", [0, 1])
def test_a_quota_is_named_and_ends_the_step(
    step: Step,
    inputs: dict[str, Path],
    machines: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    step.namespace.kubectl("create", "quota", "few", f"--hard=pods={machines}")
    check_no_place(step, inputs, {}, "exceeded quota: few", monkeypatch, capfd)


def check_no_place(
    step: Step,
    inputs: dict[str, Path],
    machine: dict[str, Any],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Check that the step prints the reason, and that its error has it."""
    monkeypatch.setattr(train_job, "SILENT_SECONDS", 4.0)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="found no place within 12 seconds") as error:
        step(inputs, queue_timeout=12, **machine)
    assert time.monotonic() - start < 60
    assert reason in str(error.value)
    assert re.search(rf"the TrainJob \S+ waits: .*{re.escape(reason)}", capfd.readouterr().err)
    until("the machines are gone", lambda: not step.namespace.pods(MACHINES))


def test_a_taint_without_a_toleration_is_named_and_ends_the_step(
    step: Step,
    inputs: dict[str, Path],
    gpus: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    machine = {"gpu": {"type": GPU, "count": 1}, "tolerations": []}
    check_no_place(step, inputs, machine, "untolerated taint", monkeypatch, capfd)


@pytest.mark.parametrize(
    ("machine", "node"),
    [
        ({"node_selector": {"kubernetes.io/hostname": FIRST.name}}, FIRST),
        ({"gpu": {"type": GPU, "count": 1}}, SECOND),  # tolerated by the file of resources
    ],
)
def test_machines_take_the_node_of_their_selector_or_of_their_gpus(
    step: Step, inputs: dict[str, Path], gpus: None, machine: dict[str, Any], node: Node
) -> None:
    places = Places(step.namespace)
    with beside(places):
        step(inputs, **machine)
    assert places.nodes == {"0": {node.name}, "1": {node.name}}


@pytest.fixture
def gpus() -> Iterator[None]:
    """The second node with GPUs in name, for pods that tolerate its taint."""
    path = f"/status/capacity/{GPU.replace('/', '~1')}"
    change = ("patch", "node", SECOND.name, "--subresource=status", "--type=json", "--patch")
    kubectl(*change, json.dumps([{"op": "add", "path": path, "value": "2"}]))
    kubectl("taint", "node", SECOND.name, f"{GPU}=present:NoSchedule")
    yield
    kubectl("taint", "node", SECOND.name, f"{GPU}-")
    kubectl(*change, json.dumps([{"op": "remove", "path": path}]))


def test_a_training_survives_a_node_that_is_cut_off(
    step: Step, inputs: dict[str, Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    """The other machine names the lost rank after a minute, and ends after ten."""
    namespace, lines = step.namespace, []
    for node in NODES:
        namespace.kubectl("apply", documents=[filler(node.name)])
    ready = "--for=condition=Ready"
    namespace.kubectl("wait", ready, "pod", "--selector", "app=filler", "--timeout=120s")

    def cut(ended: threading.Event) -> None:
        until("a checkpoint is on S3", lambda: has_checkpoint(namespace.name), 600)
        pods = {RANK.search(pod)[1]: (pod, node) for pod, node in namespace.pods(MACHINES).items()}
        (first, _), (_, place) = pods["0"], pods["1"]
        (lost,) = (node for node in NODES if node.name == place)
        lost.cut()
        other = next(node.name for node in NODES if node != lost)
        namespace.kubectl("delete", "pod", f"filler-{other}", "--wait=false")
        start = time.monotonic()
        while not ended.wait(2):
            with suppress(RuntimeError):  # the pod of rank 0 has ended
                log = namespace.kubectl("logs", first)
                if "waiting for rank 1 since" in log and not lines:
                    lines.append(time.monotonic() - start)
                    assert lines[0] < 120

    with beside(cut):
        model = step(inputs, cpu="700m")
    assert lines
    assert files(model) == expected


def filler(node: str) -> dict[str, Any]:
    """A pod that leaves room for one machine on a node."""
    container = {
        "name": "filler",
        "image": STEPS,
        "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "700m"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"filler-{node}", "labels": {"app": "filler"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def has_checkpoint(folder: str) -> bool:
    listed = boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/")
    return any(entry["Key"].endswith("index.json") for entry in listed.get("Contents", []))
