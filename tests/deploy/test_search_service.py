"""The search service on a cluster: its options, probes, replicas and network."""

import re
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from starlette.testclient import TestClient

from bifocal.search.trained_model import TrainedModel
from bifocal.serving.service.app import create_app
from bifocal.serving.service.models import RunSource
from bifocal.serving.service.settings import Settings
from pipelines.app.serve import GRACE_SECONDS, serve_command
from pipelines.kubeflow import resources
from tests.deploy.documents import Render, containers, find, pods
from tests.mlflow_server import free_port

ROOT = Path(__file__).parents[2]
PROBES = ("startup", "liveness", "readiness")


@pytest.mark.parametrize("file", ["pipelines/kubeflow/resources.yaml", "docs/canary.md"])
def test_the_replicas_of_the_search_service_have_the_address_of_the_canary(
    file: str, render: Render
) -> None:
    service = find(render("overlays/search"), "Service", "search-replicas")
    address = f"dns+http://search-replicas.{service['metadata']['namespace']}.svc:{service['spec']['ports'][0]['port']}"
    assert re.findall(r"dns\+http://search-replicas\.[^\"]+", (ROOT / file).read_text()) == [
        address
    ]


@pytest.mark.parametrize("overlay", ["search", "kserve"])
def test_a_replica_looks_for_releases_twice_a_minute(overlay: str, render: Render) -> None:
    arguments = next(
        container["args"]
        for container in containers(render(f"overlays/{overlay}"))
        if "args" in container
    )
    assert "--poll=30" in arguments


@pytest.mark.parametrize("overlay", ["search", "kserve", "kserve-oci"])
def test_the_search_service_is_started_probed_and_ended_as_it_expects(
    overlay: str, render: Render
) -> None:
    ((_, pod),) = pods(render(f"overlays/{overlay}"))
    container, *proxies = pod["containers"]
    assert [proxy["name"] for proxy in proxies] == ["proxy"] * (overlay == "search")
    program = ["python", "-m", "bifocal", "serve"]
    assert container["args"][: len(program)] == program
    options = {option for parameter in serve_command.params for option in parameter.opts}
    assert {argument.partition("=")[0] for argument in container["args"][len(program) :]} <= options
    with TestClient(create_app(RunSource(Path("no such run")), Settings())) as client:
        statuses = {
            name: client.get(container[f"{name}Probe"]["httpGet"]["path"]).status_code
            for name in PROBES
        }
    assert statuses == {
        "startup": 200,
        "liveness": 200,
        "readiness": 503,
    }  # alive, but without a model
    pre_stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pre_stop + GRACE_SECONDS
    assert Settings().body_seconds < GRACE_SECONDS
    mounts = {
        mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]
    }
    assert mounts == {"/tmp": False, "/images": True}


def test_the_service_reads_the_run_of_an_image_where_kserve_mounts_it(
    render: Render, demo: TrainedModel
) -> None:
    ((_, pod),) = pods(render("overlays/kserve-oci"))
    (container,) = pod["containers"]
    assert "--run=/mnt/models" in container["args"]
    assert {"name": "STORAGE_URI", "value": "oci://localhost/bifocal-run:1"} in container["env"]
    lines = (ROOT / "deploy/overlays/kserve-oci/Containerfile").read_text().splitlines()
    copied = [line.split()[2:] for line in lines if line.startswith("COPY")]
    assert {target for _, target in copied} == {f"/models/{source}" for source, _ in copied}
    assert all((demo.directory / source).exists() for source, _ in copied)


def test_the_search_service_is_scaled_protected_and_reaches_mlflow(render: Render) -> None:
    documents, mlflow = render("overlays/search"), render("overlays/mlflow")
    deployment, namespace = (
        find(documents, "Deployment", "search"),
        find(documents, "Namespace", "search"),
    )
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    assert (
        find(documents, "HorizontalPodAutoscaler", "search")["spec"]["scaleTargetRef"]["name"]
        == "search"
    )
    policy = find(documents, "NetworkPolicy", "search")
    for selector in (
        find(documents, "PodDisruptionBudget", "search")["spec"]["selector"]["matchLabels"],
        find(documents, "Service", "search")["spec"]["selector"],
        policy["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    (clients,) = find(mlflow, "NetworkPolicy", "mlflow")["spec"]["ingress"][0]["from"]
    assert (
        clients["namespaceSelector"]["matchLabels"].items()
        <= namespace["metadata"]["labels"].items()
    )
    (server,) = (rule for rule in policy["spec"]["egress"] if rule["ports"][0]["port"] == 5000)
    (peer,) = server["to"]
    pod = find(mlflow, "Deployment", "mlflow")["spec"]["template"]
    assert peer["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (address,) = (
        entry["value"]
        for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        if entry["name"] == "MLFLOW_TRACKING_URI"
    )
    assert address == resources.load().environment["MLFLOW_TRACKING_URI"]


def test_clients_reach_the_service_by_its_proxy(render: Render) -> None:
    documents = render("overlays/search")
    (port,) = find(documents, "Service", "search")["spec"]["ports"]
    pod = find(documents, "Deployment", "search")["spec"]["template"]["spec"]
    service, proxy = pod["containers"]
    assert [named["name"] for named in proxy["ports"]] == [port["targetPort"]]
    configuration = (ROOT / "deploy/base/search/nginx.conf").read_text()
    assert f"listen {proxy['ports'][0]['containerPort']};" in configuration
    assert f"server 127.0.0.1:{service['ports'][0]['containerPort']};" in configuration
    assert "--trusted-proxy=127.0.0.1" in service["args"]
    # The proxy stays until the service has ended its requests.
    waits = [part["lifecycle"]["preStop"]["sleep"]["seconds"] for part in (service, proxy)]
    assert waits[0] + GRACE_SECONDS <= waits[1] < pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    ("overlay", "name"),
    [("search", "search"), ("kserve", "bifocal"), ("mlflow", "mlflow"), ("mlflow", "postgres")],
)
def test_every_service_has_rules_of_both_directions(
    overlay: str, name: str, render: Render
) -> None:
    spec = find(render(f"overlays/{overlay}"), "NetworkPolicy", name)["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    reached = [rule for rule in spec["egress"] if not rule.get("to")]
    assert not reached, "a rule without a peer reaches everything"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_proxy_ends_slow_headers_and_counts_connections(tmp_path: Path) -> None:
    port, behind = free_port(), free_port()
    text = (ROOT / "deploy/base/search/nginx.conf").read_text()
    for old, new in (
        ("listen 8081", f"listen 127.0.0.1:{port}"),
        ("127.0.0.1:8080", f"127.0.0.1:{behind}"),
        ("/tmp/", f"{tmp_path}/"),
        ("client_header_timeout 10s", "client_header_timeout 1s"),
        ("limit_conn address 256", "limit_conn address 4"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "nginx.conf").write_text(text)
    seen = []

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.headers["host"], self.headers["x-forwarded-for"]))
            time.sleep(1)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", behind), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        "nginx",
        "-c",
        str(tmp_path / "nginx.conf"),
        "-p",
        str(tmp_path),
        "-g",
        "daemon off;",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def ask(_: int) -> int:
        with suppress(HTTPError):
            return int(urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30).status)
        return 429

    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port), 10)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        with connection:
            connection.sendall(b"GET / HTTP/1.1\r\n")
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        with ThreadPoolExecutor(12) as threads:
            statuses = Counter(threads.map(ask, range(12)))
        assert statuses[200] >= 4
        assert statuses[429] >= 1
        assert set(seen) == {(f"127.0.0.1:{port}", "127.0.0.1")}
    finally:
        process.terminate()
        process.wait(30)
        server.shutdown()


def test_the_pods_of_kserve_are_those_of_the_deployment(render: Render) -> None:
    """KServe names the container and its port, has no proxy and needs a limit of processors."""
    rendered = deepcopy([render(f"overlays/{name}") for name in ("search", "kserve")])
    ((_, ours),), ((_, theirs),) = map(pods, rendered)
    first, second = ours["containers"][0], theirs["containers"][0]
    ports = {"http": 8080}
    for name in PROBES:
        probe = first[f"{name}Probe"]["httpGet"]
        probe["port"] = ports[probe["port"]]
    proxied = {"--log-queries", "--open-metrics", "--trusted-proxy=127.0.0.1"}
    assert [value for value in first["args"] if value not in proxied] == second["args"]
    limits = {**first["resources"]["limits"], "cpu": second["resources"]["limits"]["cpu"]}
    first["resources"]["limits"] = limits
    own = ("name", "args", "ports")
    assert {key: value for key, value in first.items() if key not in own} == {
        key: value for key, value in second.items() if key not in own
    }
    volumes = [entry for entry in ours["volumes"] if not entry["name"].startswith("proxy")]
    assert volumes == theirs["volumes"]
    for key in ("securityContext", "terminationGracePeriodSeconds", "automountServiceAccountToken"):
        assert ours[key] == theirs[key]
