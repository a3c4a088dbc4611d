"""Two nodes of Kubernetes, which ``make test-nodes`` starts, with S3 and MLflow beside them."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.cluster.nodes.kubectl import Namespace, kubectl
from tests.cluster.nodes.start import HOST, MARK, NODES, until
from tests.mlflow_server import start_server, stop_server, wait_for_server

MLFLOW = "mlflow.mlflow.svc.cluster.local"
BUCKET = "bifocal"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder on a machine without the nodes."""
    if MARK not in os.environ:
        for item in items:
            if Path(__file__).parent == item.path.parent:
                item.add_marker(pytest.mark.skip(reason="'make test-nodes' starts two nodes"))


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    """Both nodes as they were, after a test that has cut or changed one."""
    yield
    for node in NODES:
        node.join()
        kubectl("uncordon", node.name)
    until("both nodes are ready", ready)


def ready() -> bool:
    """Whether both nodes are ready and accept pods."""
    nodes = json.loads(kubectl("get", "nodes", "--output", "json"))["items"]
    states = [
        condition["status"]
        for node in nodes
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready" and not node["spec"].get("taints")
    ]
    return states == ["True"] * len(NODES)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A namespace of its own for a test."""
    found = Namespace(f"test-{uuid4().hex[:8]}")
    kubectl("create", "namespace", found.name)
    yield found
    kubectl("delete", "namespace", found.name, "--wait=false")


@pytest.fixture(scope="session")
def mlflow_address(
    tmp_path_factory: pytest.TempPathFactory, empty_mlflow_store: Path
) -> Iterator[str]:
    """Address of an MLflow server, which pods reach by the name of ``deploy/base/mlflow``."""
    folder, port = tmp_path_factory.mktemp("server"), 5000
    shutil.copy(empty_mlflow_store, folder / "mlflow.db")
    process = start_server(folder, port, names=(HOST, MLFLOW))
    kubectl("create", "namespace", "mlflow")
    service = {"name": "mlflow", "namespace": "mlflow"}
    kubectl(
        "apply",
        documents=[
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": service,
                "spec": {"ports": [{"port": port}]},
            },
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": service | {"labels": {"kubernetes.io/service-name": "mlflow"}},
                "addressType": "IPv4",
                "ports": [{"port": port}],
                "endpoints": [{"addresses": [HOST]}],
            },
        ],
    )
    try:
        wait_for_server(port)
        yield f"http://{HOST}:{port}"
    finally:
        stop_server(process)


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """Address of an S3 server, with an empty bucket."""
    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def services(
    mlflow_address: str, s3_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let this process reach MLflow and S3."""
    for name, value in {
        "MLFLOW_TRACKING_URI": mlflow_address,
        "AWS_ENDPOINT_URL": s3_address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "BIFOCAL_S3_PATH_STYLE": "1",
        "BIFOCAL_CHECKPOINT_MINUTES": "0",
        "BIFOCAL_CACHE": str(tmp_path / "cache"),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket=BUCKET)
