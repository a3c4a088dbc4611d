"""The search service of ``deploy/`` on a cluster, and clients in a pod of their own."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from cluster import SMALL, Cluster

MODEL = "bifocal"
NAMESPACE, CLIENTS, KEY = "search", "search-clients", "key-3b1f09c27d5a48e6b0c4-of-a-client"
PROXY = "docker.io/nginxinc/nginx-unprivileged:stable"
WAIT_SECONDS = 900.0
BETTER = ("--recipe", "tests/cluster/better.yaml")

# Runs in a pod: asks the addresses of its arguments until its input ends, and prints the answers
# and the failures.
LOAD = """
import json, sys, threading, time, urllib.request
stop, answers, failures = threading.Event(), 0, []
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
body = json.dumps({"text": "a red star", "k": 5}).encode()
headers = {"Content-Type": "application/json", "Authorization": "Bearer KEY"}
while not stop.is_set():
    try:
        request = urllib.request.Request(sys.argv[1] + "/api/v1/search", body, headers)
        assert json.load(urllib.request.urlopen(request, timeout=20))["results"]
        answers += 1
    except Exception as error:
        failures.append(f"{time.strftime('%X')} {error!r}")
    time.sleep(0.05)
print(json.dumps([answers, failures]))
""".replace("KEY", KEY)
# Asks each replica once.
EACH = """
import json, socket, urllib.error, urllib.request
found = socket.getaddrinfo("search-replicas.search", 8080, type=socket.SOCK_STREAM)
addresses = sorted({entry[4][0] for entry in found})
body = json.dumps({"text": "a red star", "k": 5}).encode()
headers = {"Content-Type": "application/json", "Authorization": "Bearer KEY"}
for address in addresses:
    request = urllib.request.Request(f"http://{address}:8080/api/v1/search", body, headers)
    try:
        print(json.dumps(json.load(urllib.request.urlopen(request, timeout=5))))
    except urllib.error.HTTPError:
        raise
    except OSError:
        pass  # the name has the address of a removed replica for some seconds
""".replace("KEY", KEY)

MARKS = [
    pytest.mark.timeout(0),
    pytest.mark.skipif(
        "BIFOCAL_SERVE_IMAGE" not in os.environ, reason="BIFOCAL_SERVE_IMAGE names no image"
    ),
]


class Service:
    """The Deployment, and a pod of a namespace that may ask it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("--namespace", NAMESPACE, *arguments)

    def wait(self) -> None:
        """Wait until all replicas of the present template are ready, and at least two."""
        self.kubectl("rollout", "status", "deployment/search", f"--timeout={WAIT_SECONDS:g}s")
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.each()) < 2:
            assert time.monotonic() < deadline, "the autoscaler started no second replica"
            time.sleep(5)

    def each(self) -> list[dict[str, Any]]:
        """Return the answer of each ready replica to one query."""
        return [json.loads(line) for line in self._client(EACH).splitlines()]

    def models(self) -> set[str]:
        """Return the models that the replicas answer by."""
        return {answer["model"] for answer in self.each()}

    def until(self, reached: Any, seconds: float = 180.0) -> None:
        """Wait until ``reached`` is true of the answers of all replicas."""
        deadline = time.monotonic() + seconds
        while not all(map(reached, answers := self.each())):
            assert time.monotonic() < deadline, answers
            time.sleep(2)

    def _client(self, script: str) -> str:
        process = self.start(script)
        output, error = process.communicate()
        assert process.returncode == 0, error
        return output

    def start(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a client that runs until its input is closed."""
        call = [
            "kubectl",
            "exec",
            "--stdin",
            "--namespace",
            CLIENTS,
            "client",
            "--",
            "python",
            "-c",
            script,
        ]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*call, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )


class Load:
    """Queries of clients during a block, none of which may fail."""

    def __init__(self, service: Service, script: str = LOAD, *arguments: str) -> None:
        self.process = service.start(script, *(arguments or ("http://search.search",)))

    def __enter__(self) -> None:
        time.sleep(3)

    def __exit__(self, *error: object) -> None:
        time.sleep(3)
        output, _ = self.process.communicate("")
        answers, failures = json.loads(output)
        assert not failures
        assert answers > 20


@contextmanager
def deployed(cluster: Cluster, registry: Any) -> Iterator[Service]:
    """The service of ``deploy/base/search`` with the champion, whose pods ask for less CPU than a
    small node has."""
    if not registry.search_model_versions(f"name='{MODEL}'"):
        assert cluster.wait(cluster.submit(*SMALL))["state"] == "SUCCEEDED"
    serve, proxy = os.environ["BIFOCAL_SERVE_IMAGE"], os.environ.get("BIFOCAL_PROXY_IMAGE", PROXY)
    images = [
        dict(zip(("name", "newName", "newTag"), (name, *used.rsplit(":", 1)), strict=True))
        for name, used in (("bifocal-serve", serve), ("nginx-unprivileged", proxy))
    ]
    folder = cluster.checkout / "deploy" / "overlays" / "test"
    folder.mkdir(exist_ok=True)
    smaller = {"cpu": "100m", "memory": "512Mi"}
    pod = {
        "containers": [{"name": "search", "resources": {"requests": smaller}}],
        "volumes": [{"name": "images", "emptyDir": {}, "persistentVolumeClaim": None}],
    }
    changes = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "search"},
        "spec": {"template": {"spec": pod}},
    }
    secret = {
        "mlflow_username": os.environ.get("MLFLOW_TRACKING_USERNAME", ""),
        "mlflow_password": os.environ.get("MLFLOW_TRACKING_PASSWORD", ""),
        "api_keys": KEY,
    }
    literals = [f"{name}={value}" for name, value in secret.items()]
    overlay = {
        "resources": ["../../base/search"],
        "images": images,
        "secretGenerator": [{"name": "search", "namespace": NAMESPACE, "literals": literals}],
        "patches": [{"patch": yaml.safe_dump(changes)}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    client = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "client", "image": serve, "command": ["sleep", "infinity"]}],
        },
    }
    cluster.kubectl("--namespace", NAMESPACE, "apply", "--kustomize", str(folder))
    cluster.kubectl("create", "namespace", CLIENTS)
    cluster.kubectl("label", "namespace", CLIENTS, "bifocal/search-client=true")
    file = folder / "client.yaml"
    file.write_text(yaml.safe_dump(client))
    cluster.kubectl("--namespace", CLIENTS, "apply", "--filename", str(file))
    cluster.kubectl(
        "--namespace", CLIENTS, "wait", "--for=condition=Ready", "pod/client", "--timeout=300s"
    )
    found = Service(cluster)
    found.wait()
    yield found
    cluster.kubectl("delete", "namespace", NAMESPACE, CLIENTS)


def champion(registry: Any) -> str:
    return str(registry.get_model_version_by_alias(MODEL, "champion").version)
