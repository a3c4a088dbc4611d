"""Alert rules and dashboard: their metrics exist, promtool accepts them, and a real Prometheus scrapes and alerts."""

import json
import re
import shutil
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import generate_latest

from bifocal.monitoring import TESTS, Week
from bifocal.monitoring.drift import Finding
from bifocal.serving.canary.report import Release, Report
from bifocal.serving.service.candidate_metrics import ComparisonCollector
from bifocal.serving.service.observation import Metrics
from tests.mlflow_server import free_port

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
NAME = re.compile(r"bifocal_[a-z0-9_]+")
SECONDS = 240


class Running:
    """A comparison that runs, as ``Comparison`` shows it to its collector."""

    state = "running"
    report = Report("canary", 0.1, Release("a", 1, "x"), Release("b", 2, "y"))


@pytest.fixture(scope="module")
def exposed() -> str:
    """Metrics of a service that compares a candidate, and of the monitor."""
    metrics = Metrics()
    metrics.requests.labels("/api/v1/search", "200").observe(0.01)
    metrics.registry.register(ComparisonCollector(Running()))  # type: ignore[arg-type]
    week = Week(datetime.now(UTC).date(), 7, {"queries": 1}, [Finding(name, 0.1, 0.2, 0.5) for name in TESTS])
    return generate_latest(metrics.registry).decode() + week.exposition(datetime.now(UTC))


def test_all_metrics_of_rules_and_dashboard_exist(exposed: str) -> None:
    names = set(NAME.findall(exposed)) | {"bifocal_model_info"}  # a service without a model has none
    rules = [
        rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
    ]
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    queries = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(rules) >= 9
    assert len(panels) >= 9
    for query in queries:
        assert set(NAME.findall(query)) <= names, query


@pytest.mark.real
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: Debian's package prometheus")
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=FOLDER, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed: Debian's package of it")
def test_a_real_prometheus_scrapes_and_alerts(exposed: str, tmp_path: Path) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    text = exposed.replace('bifocal_monitor_crossed{test="images"} 0', 'bifocal_monitor_crossed{test="images"} 1')

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    target, port = f"127.0.0.1:{service.server_address[1]}", free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "alerts.yaml")],
        "scrape_configs": [{"job_name": "bifocal", "static_configs": [{"targets": [target]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    process = subprocess.Popen(["prometheus", *options], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        deadline, firing = time.monotonic() + SECONDS, list[str]()
        while not firing:
            assert time.monotonic() < deadline
            time.sleep(0.2)
            try:
                with urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=5) as answer:
                    alerts = json.load(answer)["data"]["alerts"]
            except OSError:
                continue
            firing = [alert["labels"]["test"] for alert in alerts if alert["labels"]["alertname"] == "BifocalDrift"]
        assert firing == ["images"]
    finally:
        process.terminate()
        process.wait(SECONDS)
        service.shutdown()
        service.server_close()
