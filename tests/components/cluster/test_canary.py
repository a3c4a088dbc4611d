"""The step on reports over a real socket, with counts on S3 and a real registry."""

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest

from bifocal.datasets import Dataset
from bifocal.serving.canary.report import Report
from components.cluster import canary as module
from components.cluster.canary import run
from components.cluster.steps import VERDICT, CanaryParams
from runtime.mlflow import alias_lock, get_version_number, make_champion
from runtime.mlflow.registry import RELEASE_TAG
from tests.bifocal.serving.canary.reports import BAD, GOOD, report_of, serve_reports
from tests.components.cluster.versions import POLICY, decisions, register
from tests.runtime.notice_servers import web_hook

RULE: dict[str, Any] = {
    "searches": 2000,
    "min_searches": 200,
    "error_rate": 0.05,
    "max_rises": {"errors": 0.005},
    "max_drops": {"relevance": 0.03},
    "max_ratios": {"latency_p50": 1.5},
}


@pytest.fixture
def registration(store: str, dataset: Dataset, tmp_path: Path) -> Path:
    """The registration of version 2, whose champion is version 1; both have releases."""
    for name in ("a", "b"):
        number = register(tmp_path / name, dataset, 0.1)
        mlflow.MlflowClient().set_model_version_tag(
            POLICY.model, str(number), RELEASE_TAG, f"digest {number}"
        )
    with alias_lock(POLICY.model, 0):
        version = get_version_number(POLICY.model, 1)
        make_champion(
            version, champion="champion", previous="previous", answer="yes", file="promotion/a.json"
        )
    (tmp_path / "registration.json").write_text(json.dumps({"model": POLICY.model, "version": 2}))
    return tmp_path


def decide(registration: Path, *reports: Report) -> dict[str, Any]:
    """Run the step on replicas with these reports; return its outputs and its record."""
    with serve_reports(
        [{"state": "running", "report": report.to_json()} for report in reports]
    ) as services:
        params = CanaryParams(
            seed=1,
            rule=RULE,
            services=services,
            folder="s3://bucket/canary",
            hours=0.5,
            champion="champion",
            lock_timeout=0,
        )
        (registration / "out").mkdir(exist_ok=True)
        outputs = run(params, registration=registration, canary=registration / "out")
    record = json.loads((registration / "out/decision.json").read_text())
    assert outputs == {VERDICT: record["verdict"]}
    return dict(record)


@pytest.mark.usefixtures("s3")
def test_the_step_waits_keeps_counts_over_restarts_and_decides(
    registration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    monkeypatch.setattr(module, "sleep", looks.append)
    monkeypatch.setattr(module, "monotonic", lambda: 600.0 * len(looks))
    with web_hook() as (address, notices):
        monkeypatch.setenv("BIFOCAL_NOTICE_URL", address)
        assert decide(registration, report_of(GOOD, GOOD, 1500))["verdict"] == "wait"
        assert looks == [600.0, 600.0, 600.0]
        (notice,) = notices
        assert (
            "version 2 of bifocal: no decision after 0.5 hours: 1500 searches of one release"
            in notice
        )
        # The step and all replicas were restarted: the previous counts are on S3.
        record = decide(registration, report_of(GOOD, GOOD, 300), report_of(GOOD, GOOD, 300))
        assert record["verdict"] == "promote"
        assert sum(record["counts_candidate"]["searches"]) == 2100
        tags, _ = decisions(2)
        assert tags["promotion.online"] == "promote"
        assert len(notices) == 1
        assert decide(registration, report_of(GOOD, BAD, 3000))["verdict"] == "withdraw"
        assert "version 2 of bifocal is withdrawn: " in notices[1]
    assert decisions(2)[0]["promotion"] == "withdrawn"


@pytest.mark.usefixtures("s3")
def test_counts_of_another_candidate_decide_nothing(
    registration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (registration / "registration.json").write_text(
        json.dumps({"model": POLICY.model, "version": 3})
    )
    monkeypatch.setattr(
        module, "sleep", lambda seconds: monkeypatch.setattr(module, "monotonic", lambda: 1e9)
    )
    record = decide(registration, report_of(GOOD, GOOD, 3000))
    assert record == {"verdict": "wait", "reasons": ["the service compares bifocal version 2"]}
