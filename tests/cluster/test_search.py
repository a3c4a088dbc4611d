"""The search service of ``deploy/`` on a cluster: pods deleted and updated under load, deletions, releases, canaries.

``BIFOCAL_SERVE_IMAGE`` names the image of the service that the nodes can pull; its tests are skipped without it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cluster import SMALL, Cluster

MODEL = "bifocal"
NAMESPACE, CLIENTS, KEY = "search", "search-clients", "key-of-a-client"
WAIT_SECONDS = 900.0
BETTER = ("--recipe", "tests/cluster/better.yaml")

# Runs in a pod: asks the addresses of its arguments until its input ends, and prints the answers and the failures.
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
# Runs in a pod: 200 clients search at every replica; they choose first results, with 'all' of the candidate too.
CHOICES = """
import json, random, socket, sys, threading, time, urllib.request
stop, answers = threading.Event(), 0
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
def ask(address, path, body):
    client = f"client {random.randrange(200)}"
    headers = {"Content-Type": "application/json", "Authorization": "Bearer KEY", "bifocal-client": client}
    request = urllib.request.Request(f"http://{address}:8080/api/v1/{path}", json.dumps(body).encode(), headers)
    return urllib.request.urlopen(request, timeout=20).read()
while not stop.is_set():
    try:
        found = socket.getaddrinfo("search-replicas.search", 8080, type=socket.SOCK_STREAM)
        for address in sorted({entry[4][0] for entry in found}):
            answer = json.loads(ask(address, "search", {"text": "a red star", "k": 5}))
            answers += 1
            if answer.get("answer") and (answer["model"] == sys.argv[1] or "all" in sys.argv):
                ask(address, "click", {"answer": answer["answer"], "item": answer["results"][0]["id"]})
    except OSError:
        pass  # the name has the address of a removed replica for some seconds
    time.sleep(0.05)
print(json.dumps([answers, []]))
""".replace("KEY", KEY)
# The rule of the canaries: clients that choose no result of the candidate withdraw it.
RULE = {
    "searches": 200, "least_searches": 100, "error_rate": 0.05, "max_rises": {"errors": 0.1},
    "max_drops": {"clicks": 0.5}, "max_ratios": {},
}  # fmt: skip
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

pytestmark = [
    pytest.mark.timeout(0),
    pytest.mark.skipif("BIFOCAL_SERVE_IMAGE" not in os.environ, reason="BIFOCAL_SERVE_IMAGE names no image"),
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
        call = ["kubectl", "exec", "--stdin", "--namespace", CLIENTS, "client", "--", "python", "-c", script]
        pipe = subprocess.PIPE
        return subprocess.Popen([*call, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


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


@pytest.fixture(scope="module")
def service(cluster: Cluster) -> Iterator[Service]:
    """The service of ``deploy/base/search`` with the champion, whose pods ask for less CPU than a small node has."""
    image, _, tag = os.environ["BIFOCAL_SERVE_IMAGE"].rpartition(":")
    folder = cluster.checkout / "deploy" / "overlays" / "test"
    folder.mkdir()
    container = "/spec/template/spec/containers/0"
    smaller = [
        {"op": "replace", "path": f"{container}/resources/requests", "value": {"cpu": "100m", "memory": "512Mi"}},
        {"op": "replace", "path": "/spec/template/spec/volumes/1", "value": {"name": "images", "emptyDir": {}}},
    ]
    secret = {
        "mlflow_username": os.environ.get("MLFLOW_TRACKING_USERNAME", ""),
        "mlflow_password": os.environ.get("MLFLOW_TRACKING_PASSWORD", ""),
        "api_keys": KEY,
    }
    literals = [f"{name}={value}" for name, value in secret.items()]
    overlay = {
        "resources": ["../../base/search"],
        "images": [{"name": "bifocal-serve", "newName": image, "newTag": tag}],
        "secretGenerator": [{"name": "search", "namespace": NAMESPACE, "literals": literals}],
        "patches": [{"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(smaller)}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    client = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "client", "image": f"{image}:{tag}", "command": ["sleep", "infinity"]}],
        },
    }
    cluster.kubectl("--namespace", NAMESPACE, "apply", "--kustomize", str(folder))
    cluster.kubectl("create", "namespace", CLIENTS)
    cluster.kubectl("label", "namespace", CLIENTS, "bifocal/search-client=true")
    pod = folder / "client.yaml"
    pod.write_text(yaml.safe_dump(client))
    cluster.kubectl("--namespace", CLIENTS, "apply", "--filename", str(pod))
    cluster.kubectl("--namespace", CLIENTS, "wait", "--for=condition=Ready", "pod/client", "--timeout=300s")
    found = Service(cluster)
    found.wait()
    yield found
    cluster.kubectl("delete", "namespace", NAMESPACE, CLIENTS)


def test_the_service_becomes_ready_and_asks_for_a_key(cluster: Cluster, registry: Any, service: Service) -> None:
    assert len(service.each()) >= 2
    assert len(service.models()) == 1
    container = json.loads(service.kubectl("get", "pods", "--output", "json"))["items"][0]["spec"]["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    with pytest.raises(AssertionError, match="401"):
        service._client(EACH.replace(KEY, "another"))


def test_no_query_fails_when_a_pod_is_deleted(service: Service) -> None:
    with Load(service):
        pod = service.kubectl("get", "pods", "--output", "name").split()[0]
        service.kubectl("delete", pod)
        service.wait()


def test_no_query_fails_during_an_update(service: Service) -> None:
    with Load(service):
        service.kubectl("rollout", "restart", "deployment/search")
        service.wait()


def test_a_deleted_image_is_in_no_answer_of_any_replica(cluster: Cluster, service: Service) -> None:
    deleted = service.each()[0]["results"][0]["id"]
    call = [sys.executable, "-m", "bifocal", "delete", deleted, "--model", MODEL]
    subprocess.run(call, cwd=cluster.checkout, check=True)
    service.until(lambda answer: deleted not in {result["id"] for result in answer["results"]})


def test_replicas_follow_a_promotion_and_a_rollback(cluster: Cluster, registry: Any, service: Service) -> None:
    former = champion(registry)
    (before,) = service.models()
    with Load(service):
        run = cluster.submit("--flow", "retrain", *SMALL, *BETTER)
        assert cluster.wait(run)["state"] == "SUCCEEDED"
        assert "promote-2" in cluster.ran(run)
        assert champion(registry) != former
        service.until(lambda answer: answer["model"] != before)
        # The former champion's release lacks the new images.
        assert cluster.wait(cluster.submit("--flow", "refresh-previous", *SMALL, *BETTER))["state"] == "SUCCEEDED"
        cluster.pipelines("promote", "--rollback", "--reason", "test")
        assert champion(registry) == former
        version = before.partition(",")[0]  # has another release now
        service.until(lambda answer: answer["model"].startswith(f"{version},"))


@pytest.fixture(scope="module")
def canary(cluster: Cluster, service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Resources of a flow whose candidates the clients of the service decide on."""
    container = "/spec/template/spec/containers/0"
    options = ("--canary=models:/bifocal@candidate", "--share=0.5")
    patch = [{"op": "add", "path": f"{container}/args/-", "value": option} for option in options]
    service.kubectl("patch", "deployment", "search", "--type=json", f"--patch={json.dumps(patch)}")
    service.wait()
    folder = tmp_path_factory.mktemp("canary")
    key = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "bifocal-service"},
        "stringData": {"api_keys": KEY},
    }
    (folder / "secret.yaml").write_text(yaml.safe_dump(key))
    cluster.kubectl("apply", "--filename", str(folder / "secret.yaml"))
    cluster.kubectl("label", "namespace", cluster.namespace, "bifocal/search-client=true", "--overwrite")
    (cluster.checkout / "pipelines/policies/canary.yaml").write_text(yaml.safe_dump(RULE))
    resources = {
        "canary": {
            "services": [f"dns+http://search-replicas.{NAMESPACE}.svc:8080"],
            "folder": f"s3://bifocal/canary/{uuid4().hex}",
            "hours": 0.06,  # one look at once, and one at the end, when the replicas have loaded the candidate
        }
    }
    (folder / "resources.yaml").write_text(yaml.safe_dump(resources))
    return folder / "resources.yaml"


@pytest.mark.parametrize(("choices", "train", "decision"), [("champion", 200, "withdrawn"), ("all", 280, "yes")])
def test_choices_of_clients_decide_on_a_candidate(
    cluster: Cluster, registry: Any, service: Service, canary: Path, choices: str, train: int, decision: str
) -> None:
    former = champion(registry)
    (before,) = service.models()
    another = ("--set", f"prepare_dataset.corpus.train={train}", "--resources", str(canary))
    with Load(service, CHOICES, before, choices):
        run = cluster.submit("--flow", "retrain", *SMALL, *BETTER, *another)
        assert cluster.wait(run)["state"] == "SUCCEEDED"
    assert "canary" in cluster.ran(run)
    candidate = registry.get_model_version_by_alias(MODEL, "candidate")
    assert candidate.tags["promotion"] == decision
    assert ("promote-2" in cluster.ran(run)) == (decision == "yes")
    assert champion(registry) == (candidate.version if decision == "yes" else former)
    service.until(lambda answer: (answer["model"] == before) == (decision == "withdrawn"))


def champion(registry: Any) -> str:
    return str(registry.get_model_version_by_alias(MODEL, "champion").version)
