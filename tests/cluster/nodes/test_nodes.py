"""Pods and services of two nodes: what each reaches on the other."""

from typing import Any

import pytest

from tests.cluster.nodes.image import STEPS
from tests.cluster.nodes.kubectl import Namespace
from tests.cluster.nodes.start import NODES, until

SERVE = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["NODE"].encode())
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
ASK = """
import sys, urllib.request
for _ in range(20):
    print(urllib.request.urlopen("http://" + sys.argv[1], timeout=10).read().decode())
"""
LABELS = {"app": "apart"}
APART = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}
    ]
}


@pytest.fixture
def apart(namespace: Namespace) -> Namespace:
    """A namespace with a service of two replicas, one on each node."""
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": "server",
        "image": STEPS,
        "command": ["python", "-c", SERVE],
        "env": [node],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    pod: dict[str, Any] = {
        "terminationGracePeriodSeconds": 1,
        "affinity": {"podAntiAffinity": APART},
        "containers": [container],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "apart"},
        "spec": {
            "replicas": len(NODES),
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "apart"},
        "spec": {"selector": LABELS, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    namespace.kubectl("apply", documents=[deployment, service])
    namespace.kubectl("rollout", "status", "deployment/apart", "--timeout=300s")
    return namespace


def test_a_service_on_two_nodes_answers_from_both(apart: Namespace) -> None:
    names = {node.name for node in NODES}
    pods = apart.pods("app=apart")
    assert set(pods.values()) == names
    for pod in pods:
        ask = ("exec", pod, "--", "python", "-c", ASK, f"apart.{apart.name}.svc.cluster.local")
        # A node learns of a replica of another node some seconds later.
        until("both nodes answer", lambda ask=ask: set(apart.kubectl(*ask).split()) == names, 60)
