"""Permissions of ``deploy/`` against the requests that the client of Kubeflow's Trainer really
sends."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubeflow.trainer import CustomTrainerContainer, KubernetesBackendConfig, TrainerClient
from kubernetes.client import Configuration

RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {
        "name": "torch-distributed",
        "labels": {"trainer.kubeflow.org/framework": "torch"},
    },
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {
                                "template": {
                                    "spec": {"containers": [{"name": "node", "image": "torch"}]}
                                }
                            },
                        },
                    }
                ]
            }
        },
    },
}
POD = {
    "metadata": {
        "name": "node-0",
        "labels": {
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": "0",
        },
    },
    "spec": {"containers": [{"name": "node", "image": "torch"}]},
    "status": {"phase": "Running"},
}
VERBS = {"POST": "create", "DELETE": "delete", "PATCH": "patch"}


@pytest.fixture
def recorded() -> Iterator[tuple[set[tuple[str, str, str]], TrainerClient]]:
    """Requests (verb, API group, resource) that the client has sent to a stub of the Kubernetes
    API."""
    requests: set[tuple[str, str, str]] = set()
    job: dict[str, Any] = {}

    class Kubernetes(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0].strip("/").split("/")
            group, rest = ("", path[2:]) if path[0] == "api" else (path[1], path[3:])
            rest = rest[2:] if rest[0] == "namespaces" else rest
            resource = "/".join([rest[0], *rest[2:]])
            requests.add(
                (VERBS.get(self.command, "get" if len(rest) > 1 else "list"), group, resource)
            )
            answer: Any = {"items": []}
            if resource == "trainjobs":
                job.update(json.loads(body) if self.command == "POST" else {})
                job.setdefault("metadata", {}).update(
                    namespace="kubeflow", creationTimestamp="2026-01-01T00:00:00Z"
                )
                answer = job
            elif resource == "clustertrainingruntimes":
                answer = RUNTIME
            elif resource == "pods":
                answer = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [POD]}
            text = json.dumps(answer).encode()
            # The runtime is one of the cluster, not of the namespace.
            self.send_response(404 if resource in ("trainingruntimes", "configmaps") else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = do_PATCH = respond

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Kubernetes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = Configuration(host=f"http://127.0.0.1:{server.server_address[1]}")
    yield (
        requests,
        TrainerClient(
            KubernetesBackendConfig(namespace="kubeflow", client_configuration=configuration)
        ),
    )
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("overlay", "account"), [("standalone", "bifocal"), ("multi-user", "default-editor")]
)
def test_the_account_of_the_steps_may_send_every_request_of_the_trainer_client(
    overlay: str,
    account: str,
    render: Callable[[str], list[dict[str, Any]]],
    recorded: tuple[set[tuple[str, str, str]], TrainerClient],
) -> None:
    requests, client = recorded
    name = client.train(
        runtime="torch-distributed", trainer=CustomTrainerContainer(image="bifocal", num_nodes=2)
    )
    client.get_job(name)
    [*client.get_job_logs(name)]
    client.delete_job(name)
    # Trainer lets every account read its version (its
    # manifests/base/rbac/public_configmap_role.yaml).
    requests.discard(("get", "", "configmaps"))
    assert {("create", "trainer.kubeflow.org", "trainjobs"), ("get", "", "pods/log")} <= requests
    documents = render(f"overlays/{overlay}")
    bound = {
        entry["roleRef"]["name"]
        for entry in documents
        if entry["kind"].endswith("RoleBinding")
        and account in {subject["name"] for subject in entry["subjects"]}
    }
    allowed = {
        (verb, group, resource)
        for entry in documents
        if entry["kind"].endswith("Role") and entry["metadata"]["name"] in bound
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert requests <= allowed
