"""Two replicas of the search service on two nodes, one of which is drained or cut off."""

import json
import shutil
import time
from collections.abc import Iterator

import pytest
from cluster import Cluster
from mlflow import MlflowClient
from search import CLIENTS, KEY, NAMESPACE, Load, Service, deployed

from bifocal.search.trained_model import TrainedModel
from tests.cluster.nodes.image import PROXY, ROOT, SERVE
from tests.cluster.nodes.kubectl import Namespace, kubectl
from tests.cluster.nodes.start import NODES, Node
from tests.pipelines.releases import add_release, move_alias, register, write_released_run

pytestmark = [
    pytest.mark.timeout(0),
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]
REPLICAS = "app.kubernetes.io/name=search"
# Runs in a pod: asks until its input ends, and prints the number of answers, the longest time
# without one, and the failures with their seconds since the start.
PATIENT = """
import json, sys, threading, time, urllib.request
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
body = json.dumps({"text": "a red star", "k": 5}).encode()
headers = {"Content-Type": "application/json", "Authorization": "Bearer KEY"}
start = last = time.monotonic()
answers, longest, failures = 0, 0.0, []
while not stop.is_set():
    try:
        request = urllib.request.Request("http://search.search/api/v1/search", body, headers)
        assert json.load(urllib.request.urlopen(request, timeout=3))["results"]
        answers += 1
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    except Exception as error:
        failures.append([time.monotonic() - start, repr(error)])
    time.sleep(0.05)
print(json.dumps([answers, longest, failures]))
""".replace("KEY", KEY)
LOST_SECONDS = 75
"""Until Kubernetes takes a node that does not answer for lost, and its replicas from services."""


@pytest.fixture(scope="module")
def service(
    mlflow_address: str, demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The service of ``deploy/`` with a champion."""
    folder = tmp_path_factory.mktemp("search")
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", mlflow_address)
        patch.setenv("BIFOCAL_SERVE_IMAGE", SERVE)
        patch.setenv("BIFOCAL_PROXY_IMAGE", PROXY)
        run = write_released_run(demo, folder / "run", "")
        move_alias(register(run))
        add_release(run)
        cluster = Cluster("", "default", folder, ())
        with deployed(cluster, MlflowClient(mlflow_address)) as found:
            yield found


@pytest.fixture
def spread(service: Service) -> Node:
    """The node that does not have the client, after a restart of all replicas."""
    service.kubectl("rollout", "restart", "deployment/search")
    service.wait()
    deadline = time.monotonic() + 120
    while len(pods := Namespace(NAMESPACE).pods(REPLICAS)) > len(NODES):
        assert time.monotonic() < deadline, pods
        time.sleep(2)
    assert set(pods.values()) == {node.name for node in NODES}
    (place,) = Namespace(CLIENTS).pods().values()
    (other,) = (node for node in NODES if node.name != place)
    return other


def test_no_query_fails_while_a_node_is_drained(service: Service, spread: Node) -> None:
    with Load(service):
        options = (f"--pod-selector={REPLICAS}", "--delete-emptydir-data", "--timeout=300s")
        kubectl("drain", spread.name, *options)
        service.wait()
    (place,) = set(Namespace(NAMESPACE).pods(REPLICAS).values())
    assert place != spread.name


def test_a_client_has_answers_while_a_node_is_cut_off(service: Service, spread: Node) -> None:
    client = service.start(PATIENT)
    time.sleep(5)
    spread.cut()
    time.sleep(LOST_SECONDS + 75)
    output, error = client.communicate("")
    answers, longest, failures = json.loads(output)
    assert answers > 200, error
    assert longest < 20
    late = [entry for entry in failures if entry[0] > LOST_SECONDS]
    assert len(late) < 0.01 * answers, late
    assert spread.name not in Namespace(NAMESPACE).pods(REPLICAS).values()
