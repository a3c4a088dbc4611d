"""Alert rules and dashboard: their metrics exist, promtool accepts them, and a real Prometheus
scrapes and alerts."""

import json
import re
import shutil
import subprocess
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from prometheus_client import generate_latest

from bifocal.monitoring import TESTS, Week
from bifocal.monitoring.drift import DriftTest
from bifocal.serving.canary.report import ReleaseIdentity, Report
from bifocal.serving.service.candidate import ComparisonCollector
from bifocal.serving.service.observation import Metrics
from tests.mlflow_server import free_port

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
NAME = re.compile(r"bifocal_[a-z0-9_]+")
SECONDS = 240


class Running:
    """A comparison that runs, as ``Comparison`` shows it to its collector."""

    state = "running"
    report = Report("canary", 0.1, ReleaseIdentity("a", 1, "x"), ReleaseIdentity("b", 2, "y"))


@pytest.fixture(scope="module")
def exposed() -> str:
    """Metrics of a service that compares a candidate, and of the monitor."""
    metrics = Metrics()
    metrics.requests.labels("/api/v1/search", "200").observe(0.01)
    metrics.registry.register(ComparisonCollector(Running()))  # type: ignore[arg-type]
    week = Week(
        datetime.now(UTC).date(),
        7,
        {"queries": 1},
        [DriftTest(name, 0.1, 0.2, 0.5) for name in TESTS],
    )
    return generate_latest(metrics.registry).decode() + week.exposition(datetime.now(UTC))


def test_all_metrics_of_rules_and_dashboard_exist(exposed: str) -> None:
    names = set(NAME.findall(exposed)) | {
        "bifocal_model_info"
    }  # a service without a model has none
    rules = [
        rule
        for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    queries = [rule["expr"] for rule in rules] + [
        target["expr"] for panel in panels for target in panel["targets"]
    ]
    assert len(rules) >= 9
    assert len(panels) >= 9
    for query in queries:
        assert set(NAME.findall(query)) <= names, query


@pytest.mark.real
@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed: Debian's package prometheus",
)
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run(
            ["promtool", *command], cwd=FOLDER, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr


class Service(BaseHTTPRequestHandler):
    """A service with metrics, and the web hook of Alertmanager."""

    text = ""
    received: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._answer(self.text)

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.received.extend(
            f"{alert['labels']['alertname']} {alert['labels']['test']}"
            for alert in content["alerts"]
        )
        self._answer("")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.real
@pytest.mark.skipif(
    not all(map(shutil.which, ("prometheus", "prometheus-alertmanager"))),
    reason="Debian's packages prometheus and prometheus-alertmanager are not installed",
)
def test_a_real_prometheus_scrapes_and_alertmanager_notifies(exposed: str, tmp_path: Path) -> None:
    Service.text = exposed.replace(
        'bifocal_monitor_crossed{test="images"} 0', 'bifocal_monitor_crossed{test="images"} 1'
    )
    Service.received.clear()
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    target, alertmanager = f"127.0.0.1:{service.server_address[1]}", f"127.0.0.1:{free_port()}"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "alerts.yaml")],
        "scrape_configs": [{"job_name": "bifocal", "static_configs": [{"targets": [target]}]}],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
    }
    route = {
        "receiver": "hook",
        "group_wait": "0s",
        "routes": [{"receiver": "hook", "matchers": ["alertname=BifocalDrift"]}],
    }
    receivers = [{"name": "hook", "webhook_configs": [{"url": f"http://{target}/hook"}]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "alertmanager.yml").write_text(
        yaml.safe_dump({"route": route, "receivers": receivers})
    )
    commands = (
        [
            "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{free_port()}",
        ],
        [
            "prometheus-alertmanager",
            "--config.file=alertmanager.yml",
            "--storage.path=alerts",
            "--cluster.listen-address=",
            f"--web.listen-address={alertmanager}",
        ],
    )
    processes = [
        subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) for command in commands
    ]
    try:
        deadline = time.monotonic() + SECONDS
        while "BifocalDrift images" not in Service.received:
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in processes)
            time.sleep(0.2)
        assert "BifocalDrift queries" not in Service.received
    finally:
        for process in processes:
            process.terminate()
            process.wait(SECONDS)
        service.shutdown()
        service.server_close()
