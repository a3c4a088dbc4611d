"""Stand-in for the Kubernetes API with Kubeflow's Trainer, over a real socket.

It stores TrainJobs as the API does: it rejects a name that exists, keeps a deleted job for a while,
and fails as told. Bodies are validated by the models of ``kubeflow_trainer_api``, strictly: an
unknown field is an error.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubeflow.trainer import KubernetesBackendConfig, TrainerClient
from kubeflow_trainer_api import models
from kubernetes.client import Configuration

from runtime.kubeflow.node import NodeSettings

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
    "metadata": {
        "name": "torch-distributed",
        "labels": {"trainer.kubeflow.org/framework": "torch"},
    },
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [NODE]}},
    },
}
NODES = NodeSettings(
    runtime="torch-distributed",
    folder="s3://bucket/jobs",
    resources={"cpu": "8", "nvidia.com/gpu": "2"},
    processes=2,
    environment=["MLFLOW_TRACKING_URI", "KFP_RUN_ID", "UNSET"],
    secrets={"bifocal-s3": {"access_key": "AWS_ACCESS_KEY_ID"}},
    shared_memory="8Gi",
    volumes=[
        {
            "persistentVolumeClaim": {"claimName": "corpora"},
            "mountPath": "/corpora",
            "subPath": "coco",
        }
    ],
    labels={"kueue.x-k8s.io/queue-name": "gpus", "team": "search"},
    annotations={"sidecar.istio.io/inject": "false"},
    node_selector={"zone": "a"},
    node_affinity=[{"key": "gpu", "operator": "In", "values": ["h100"]}],
    tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    image_pull_secrets=["registry"],
    security_context={"runAsUser": 12345},
    timeout=600,
    queue_timeout=60,
)


@dataclass
class Cluster:
    """State of the API.

    Attributes:
        jobs: TrainJobs that exist, by name.
        created, deleted: names, in order.
        faults: status codes of the next requests for TrainJobs; 0 closes the connection, 200 is not
            a fault.
        on_poll: called with a job that runs before each answer, such as to end it.
        polls_until_gone: requests that a deleted job still answers, with a ``deletionTimestamp``.
        pods: pods of every job.
    """

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    on_poll: Callable[[dict[str, Any]], None] = lambda job: None
    polls_until_gone: int = 0
    pods: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def client(self) -> TrainerClient:
        """Return a client of Kubeflow's SDK."""
        configuration = Configuration(host=self.url)
        configuration.retries = False
        return TrainerClient(
            KubernetesBackendConfig(namespace=NAMESPACE, client_configuration=configuration)
        )

    def create(self, job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = job["metadata"]["name"]
        if name in self.jobs:
            return 409, {"reason": "AlreadyExists"}
        parsed = models.TrainerV1alpha1TrainJob.from_dict(job)
        assert parsed is not None
        assert parsed.to_dict() == job, "a field is unknown to kubeflow_trainer_api"
        job["metadata"] |= {"namespace": NAMESPACE, "creationTimestamp": "2026-01-01T00:00:00Z"}
        self.jobs[name] = job
        self.created.append(name)
        return 201, job

    def get(self, name: str) -> tuple[int, dict[str, Any]]:
        if name not in self.jobs:
            return 404, {}
        job = self.jobs[name]
        if "deletionTimestamp" in job["metadata"]:
            self.polls_until_gone -= 1
            if self.polls_until_gone < 0:
                del self.jobs[name]
                return 404, {}
        elif "status" not in job:
            self.on_poll(job)
        return 200, job

    def delete(self, name: str) -> tuple[int, dict[str, Any]]:
        if name not in self.jobs:
            return 404, {}
        self.deleted.append(name)
        self.jobs[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if not self.polls_until_gone:
            del self.jobs[name]
        return 200, {}


def end(job: dict[str, Any], kind: str) -> None:
    """Give a job its final condition, "Complete" or "Failed"."""
    time = "2026-01-01T00:00:00Z"
    condition = {
        "type": kind,
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": time,
    }
    job["status"] = {"conditions": [condition]}


class Handler(BaseHTTPRequestHandler):
    cluster: Cluster

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.split("?")[0]
        name = path.rsplit("/", 1)[-1]
        status: int
        answer: dict[str, Any]
        status, answer = 404, {"message": "not found"}
        if path.startswith(JOBS):
            fault = self.cluster.faults.pop(0) if self.cluster.faults else 200
            if fault == 0:
                self.close_connection = True
                return
            if fault != 200:
                status, answer = fault, {"message": "a planned fault"}
            else:
                try:
                    status, answer = self.answer(name, body)
                # of a test's function: rejected for good, or the client would try again
                except Exception as error:
                    status, answer = 422, {"reason": repr(error)}
        elif "/clustertrainingruntimes/" in path:
            status, answer = 200, RUNTIME
        elif path.endswith("/events"):
            events = {"kind": "EventList", "apiVersion": "v1", "metadata": {}}
            status, answer = 200, {**events, "items": self.cluster.events}
        elif path.endswith("/pods"):
            status, answer = (
                200,
                {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.cluster.pods},
            )
        text = json.dumps(answer).encode()
        self.send_response(status, answer.get("reason"))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def answer(self, name: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if self.command == "POST":
            return self.cluster.create(json.loads(body))
        return self.cluster.delete(name) if self.command == "DELETE" else self.cluster.get(name)

    do_GET = do_POST = do_DELETE = respond

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Yield a cluster without jobs; its API answers at ``url``."""
    cluster = Cluster()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"cluster": cluster}))
    cluster.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
