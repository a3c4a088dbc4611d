"""Canaries of the search service on a cluster: clients decide on a candidate, for it and against
it."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cluster import SMALL, Cluster
from search import BETTER, KEY, MARKS, MODEL, NAMESPACE, Load, Service, champion

# Runs in a pod: 200 clients search at every replica; they choose first results, with 'all' of the
# candidate too.
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
    "searches": 200,
    "min_searches": 100,
    "error_rate": 0.05,
    "max_rises": {"errors": 0.1},
    "max_drops": {"clicks": 0.5},
    "max_ratios": {},
}
pytestmark = MARKS


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
    cluster.kubectl(
        "label", "namespace", cluster.namespace, "bifocal/search-client=true", "--overwrite"
    )
    (cluster.checkout / "pipelines/policies/canary.yaml").write_text(yaml.safe_dump(RULE))
    resources = {
        "canary": {
            "services": [f"dns+http://search-replicas.{NAMESPACE}.svc:8080"],
            "folder": f"s3://bifocal/canary/{uuid4().hex}",
            # one look at once, and one at the end, when the replicas have loaded the candidate
            "hours": 0.06,
        }
    }
    (folder / "resources.yaml").write_text(yaml.safe_dump(resources))
    return folder / "resources.yaml"


@pytest.mark.parametrize(
    ("choices", "train", "decision"), [("champion", 200, "withdrawn"), ("all", 280, "yes")]
)
def test_choices_of_clients_decide_on_a_candidate(
    cluster: Cluster,
    registry: Any,
    service: Service,
    canary: Path,
    choices: str,
    train: int,
    decision: str,
) -> None:
    previous = champion(registry)
    (before,) = service.models()
    another = ("--set", f"prepare_dataset.corpus.train={train}", "--resources", str(canary))
    with Load(service, CHOICES, before, choices):
        run = cluster.submit("--flow", "retrain", *SMALL, *BETTER, *another)
        assert cluster.wait(run)["state"] == "SUCCEEDED"
    assert "canary" in cluster.ran(run)
    candidate = registry.get_model_version_by_alias(MODEL, "candidate")
    assert candidate.tags["promotion"] == decision
    assert ("promote-2" in cluster.ran(run)) == (decision == "yes")
    assert champion(registry) == (candidate.version if decision == "yes" else previous)
    service.until(lambda answer: (answer["model"] == before) == (decision == "withdrawn"))
