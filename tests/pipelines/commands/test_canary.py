"""The rule on reports of simulated clients, and the command with a real registry and a real promotion."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from click.testing import CliRunner

from bifocal.datasets import Dataset
from bifocal.serving.canary.counts import EDGES, GROUPS
from bifocal.serving.canary.decision import decide
from bifocal.serving.canary.report import Release, Report
from pipelines.__main__ import main
from pipelines.canary.services import load_rule
from runtime.mlflow.registry import RELEASE_TAG
from tests.components.cluster.promote.versions import POLICY, decisions, number_of, register
from tests.components.cluster.promote.versions import decide as promote

RULE = load_rule()
GOOD, BAD = {"relevance": 0.8, "nothing": 0.02, "ms": 10.0}, {"relevance": 0.6, "nothing": 0.2, "ms": 10.0}
RELEASES = [Release(f"bifocal version {number}", number, f"digest {number}") for number in (1, 2)]


def report_of(champion: dict[str, float], candidate: dict[str, float], searches: int = 3000) -> Report:
    """Return the report of simulated clients."""
    generator, report = np.random.default_rng(0), Report("canary", 0.5, *RELEASES)
    for counts, truth in ((report.counts_champion, champion), (report.counts_candidate, candidate)):
        for group in generator.integers(0, GROUPS, searches):
            if generator.random() < truth.get("errors", 0.0):
                counts.add_error(group)
                continue
            found = generator.random() >= truth["nothing"]
            relevance = min(1.0, truth["relevance"] + 0.1 * generator.normal()) if found else 0.0
            counts.add_answer(group, 10 * found, relevance, truth["ms"] / 1000 * generator.lognormal(0, 0.3))
            if generator.random() < truth.get("clicks", 0.0):
                counts.add_click(group)
    return report


@pytest.mark.parametrize(
    ("champion", "candidate", "searches", "verdict", "reason"),
    [
        (GOOD, GOOD, 3000, "promote", None),
        (BAD, GOOD, 3000, "promote", None),
        (GOOD, GOOD, 1000, "wait", "1000 searches of one release, 2000 are needed"),
        (GOOD, BAD, 3000, "withdraw", "relevance is worse by +0.2"),
        (GOOD, BAD, 300, "withdraw", "relevance is worse by +0."),
        (GOOD, BAD, 150, "wait", "150 searches of one release, 200 are needed"),
        (GOOD, GOOD | {"errors": 0.02}, 3000, "withdraw", "errors is worse by +0.0"),
        (GOOD, GOOD | {"ms": 30.0}, 3000, "withdraw", "latency_p50 is worse by +"),
        (GOOD, GOOD | {"ms": 14.5}, 3000, "wait", "latency_p50 is worse by +0.4"),
        (GOOD, GOOD | {"relevance": 0.77}, 3000, "wait", "relevance is worse by +0.0"),
    ],
)
def test_verdicts(
    champion: dict[str, float], candidate: dict[str, float], searches: int, verdict: str, reason: str | None
) -> None:
    found = decide(RULE, report_of(champion, candidate, searches))
    assert found.verdict == verdict, found.reasons
    assert any(text.startswith(reason) for text in found.reasons) if reason else not found.reasons
    assert json.loads(json.dumps(found.record(), allow_nan=False))["verdict"] == verdict


def test_an_equal_candidate_is_hardly_ever_withdrawn_however_often_the_rule_looks() -> None:
    rule = replace(RULE, max_rises={"nothing_found": 0.0}, max_drops={}, max_ratios={})
    generator, withdrawn = np.random.default_rng(4), 0
    for _ in range(150):
        report = Report("canary", 0.5, *RELEASES)
        for _ in range(20):
            for counts in (report.counts_champion, report.counts_candidate):
                counts.searches += generator.poisson(2, GROUPS)
                counts.nothing = np.minimum(counts.searches, counts.nothing + generator.poisson(0.2, GROUPS))
            if decide(rule, report).verdict == "withdraw":
                withdrawn += 1
                break
    assert withdrawn <= 0.05 * 150


def test_clicks_decide_if_the_rule_names_them_and_clients_send_them() -> None:
    rule = replace(RULE, max_drops={"clicks": 0.05})
    assert decide(rule, report_of(GOOD, GOOD)).reasons == ["clicks was not measured, or by too few clients"]
    fewer = report_of(GOOD | {"clicks": 0.5}, GOOD | {"clicks": 0.3})
    assert decide(rule, fewer).verdict == "withdraw"
    assert decide(rule, report_of(GOOD | {"clicks": 0.3}, GOOD | {"clicks": 0.5})).verdict == "promote"


def test_reports_of_replicas_add_up_and_survive_json() -> None:
    first, second = report_of(GOOD, BAD, 500), report_of(BAD, GOOD, 300)
    first.add_overlap(3, ["a", "b"], ["b", "c"])
    both = Report.from_json(json.loads(json.dumps(first.to_json(), allow_nan=False))) + second
    assert both.counts_champion.searches.sum() == 800
    assert both.counts_champion.latency.sum() == 800
    assert both.overlap.sum() == 0.5
    relevance = first.counts_candidate.relevance + second.counts_candidate.relevance
    np.testing.assert_allclose(both.counts_candidate.relevance, relevance, atol=1e-5)
    with pytest.raises(ValueError, match="two replicas differ in candidate"):
        _ = first + replace(second, candidate=RELEASES[0])
    for damage in ({"mode": "x"}, {"overlap": [1]}, {"counts_champion": {}}, {"candidate": None}):
        with pytest.raises(ValueError, match=r"not a report of bifocal serve"):
            Report.from_json(first.to_json() | damage)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"least_searches": 5000}, "least_searches is 5000, at most searches, 2000"),
        ({"max_rises": {}, "max_drops": {}, "max_ratios": {}}, "name a condition"),
        ({"max_drops": {"clicks_": 0.1}}, "'relevance' or 'clicks'"),
    ],
)
def test_a_rule_that_cannot_decide_is_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    file = tmp_path / "rule.yaml"
    file.write_text(json.dumps(asdict(RULE)))
    assert load_rule(file) == RULE
    file.write_text(json.dumps(asdict(RULE) | change))
    with pytest.raises(ValueError, match=reason):
        load_rule(file)


@contextmanager
def serve_reports(contents: list[Any]) -> Iterator[list[str]]:
    """Yield the addresses of services that answer with these texts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = int(self.path.split("/")[1])
            found = contents[number] if self.path.endswith("/api/v1/comparison") else None
            body = json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Write nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield [f"http://127.0.0.1:{server.server_port}/{number}" for number in range(len(contents))]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(artifacts: Path, *reports: Report, state: str = "running") -> str:
    """Run the command on the replicas of a service; return its output."""
    with serve_reports([{"state": state, "report": report.to_json()} for report in reports]) as services:
        options = [option for service in services for option in ("--service", service)]
        command = ["canary", *options, "--artifacts", str(artifacts)]
        return CliRunner().invoke(main, command, catch_exceptions=False).output


@pytest.fixture
def versions(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """A champion, and a candidate that finds more on the test images."""
    monkeypatch.setattr("pipelines.policies.load_promotion", lambda path: POLICY)
    found = []
    for name, noise in (("a", 0.6), ("b", 0.1)):
        found.append(register(tmp_path / name, dataset, noise))
        if name == "a":
            promote(artifacts)
        mlflow.MlflowClient().set_model_version_tag(POLICY.model, str(found[-1]), RELEASE_TAG, f"digest {found[-1]}")
    return found[0], found[1]


def test_a_candidate_that_is_not_worse_is_promoted_by_the_policy(
    versions: tuple[int, int], artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = report_of(GOOD, GOOD, 1500)
    output = run(artifacts, half)
    assert "wait: 1500 searches of one release, 2000 are needed" in output
    with monkeypatch.context() as patch:
        strict = POLICY.model_copy(update={"size_mb": 1e-6})
        patch.setattr("pipelines.policies.load_promotion", lambda path: strict)
        assert "not promoted: " in run(artifacts, half, half)
    assert number_of(POLICY.champion) == versions[0]
    output = run(artifacts, half, half)  # two replicas
    assert "promoted: version 2 of bifocal" in output, output
    assert "candidate bifocal version 2: 3,000 searches" in output
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (versions[1], versions[0])
    tags, records = decisions(versions[1])
    assert (tags["promotion"], tags["promotion.online"]) == ("yes", "promote")
    (online,) = (record for record in records if "verdict" in record)
    assert online["counts_candidate"]["searches"] == (2 * half.counts_candidate.searches).tolist()
    with pytest.raises(ValueError, match="the registry has another one by now"):
        run(artifacts, half, half)


def test_a_worse_candidate_is_withdrawn_despite_its_ranks(versions: tuple[int, int], artifacts: Path) -> None:
    output = run(artifacts, report_of(GOOD, BAD))
    assert output.endswith("withdrawn: version 2 of bifocal\n")
    assert (number_of(POLICY.champion), number_of(POLICY.candidate)) == versions
    tags, (record,) = decisions(versions[1])
    assert (tags["promotion"], tags["promotion.online"], record["verdict"]) == ("withdrawn", "withdraw", "withdraw")
    (reason,) = promote(artifacts).reasons
    assert reason.startswith("the version was withdrawn: ")
    assert "nothing to decide: gone" in run(artifacts, report_of(GOOD, BAD), state="gone")


def test_services_without_a_comparison_and_wrong_addresses_are_named() -> None:
    for contents, reason in (([None], "without --canary"), ([{"a": 1}], "another text than a comparison")):
        with serve_reports(contents) as services, pytest.raises(ValueError, match=reason):
            CliRunner().invoke(main, ["canary", "--service", services[0]], catch_exceptions=False)
    with pytest.raises(ValueError, match="is no address of a service"):
        CliRunner().invoke(main, ["canary", "--service", "localhost:8080"], catch_exceptions=False)
    assert (np.diff(EDGES) > 0).all()
