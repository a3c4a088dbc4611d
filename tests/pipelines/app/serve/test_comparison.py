"""``bifocal serve --canary`` and ``--shadow`` with two real releases over HTTP, and the rule on their reports."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import mlflow
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from bifocal.search.calibration import Calibration
from bifocal.serving.online.report import Report, overlap_at_10
from bifocal.serving.service.clients import Place
from bifocal.serving.service.ranking import Query
from bifocal.serving.service.shadow import WAITING
from bifocal.trained import TrainedModel
from pipelines.__main__ import main
from pipelines.app.serve_sources import ReleaseSource
from pipelines.canary import rule as rules
from runtime.mlflow import VETO, get_version, version_tags
from runtime.mlflow.connection import connect
from tests.mlflow_server import free_port
from tests.pipelines.app.serve.comparing import CANDIDATE, CHAMPION, Damaged, comparison, post, search, serve
from tests.pipelines.app.serve.releases import add_release, move_alias, register, wait, write_released_run
from tests.pipelines.app.serve.server import Server

CALIBRATION = Calibration(-4.0, 10.0, 5.0, 0.3, 0.0, 0.0, 1.0, 100)
SHARE = 0.4
GOOD, BAD = 1, 2
"""Numbers of the versions."""
RULE = {
    "searches": 60, "least_searches": 50, "error_rate": 0.05, "max_rises": {"nothing_found": 0.1, "errors": 0.2},
    "max_drops": {"relevance": 0.1}, "max_ratios": {"latency_p50": 50.0},
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of a good model, and of a model that finds less."""
    folder = tmp_path_factory.mktemp("compared")
    parts = (("good", 1, 0.0), ("bad", -1, 0.3))
    return {
        name: write_released_run(demo, folder / name, f"{name}-", sign, noise, CALIBRATION)
        for name, sign, noise in parts
    }


@pytest.fixture(scope="module")
def registry(runs: dict[str, Path], empty_mlflow_store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a store with version 1, the good model, and version 2."""
    folder = tmp_path_factory.mktemp("registry")
    address = f"sqlite:///{shutil.copy(empty_mlflow_store, folder / 'mlflow.db')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", address)
        connect()
        # The process of the service has another working directory.
        mlflow.create_experiment("releases", (folder / "files").as_uri())
        assert [register(runs["good"]), register(runs["bad"])] == [GOOD, BAD]
        for run in runs.values():
            add_release(run)
    return address


@pytest.fixture
def store(registry: str, monkeypatch: pytest.MonkeyPatch) -> mlflow.MlflowClient:
    """Client of the store, without withdrawals."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry)
    client = connect()
    for number in (GOOD, BAD):
        if VETO in client.get_model_version("bifocal", str(number)).tags:
            client.delete_model_version_tag("bifocal", str(number), VETO)
    return client


def name_releases(champion: int, candidate: int) -> None:
    move_alias(champion)
    move_alias(candidate, "candidate")


@pytest.fixture(scope="module")
def sentences(demo: TrainedModel) -> list[str]:
    return [demo.collection.captions(row)[0] for row in range(0, 256, 8)]


def tags_of_candidate() -> dict[str, str]:
    version = get_version("bifocal", "candidate")
    assert version is not None
    return version_tags(version)


def relevance(answer: Any) -> float:
    return float(answer["results"][0]["probability"]) if answer["results"] else 0.0


def test_a_worse_canary_answers_its_share_until_the_rule_withdraws_it(
    store: mlflow.MlflowClient, sentences: list[str], tmp_path: Path
) -> None:
    name_releases(GOOD, BAD)
    options = (
        "--deletions",
        tmp_path / "deleted",
        "--model",
        CHAMPION,
        "--canary",
        CANDIDATE,
        "--share",
        SHARE,
        "--poll",
        0.2,
    )
    server = Server(free_port(), tmp_path / "log.jsonl", *options)
    server.start()
    address = f"http://127.0.0.1:{server.port}"
    try:
        server.wait_until_ready()
        wait(lambda: comparison(address)["state"] == "running")
        assert comparison(address)["report"] is None
        answers: dict[str, list[Any]] = {"good": [], "bad": []}
        clients = [f"client {number}" for number in range(200)]
        digest = tags_of_candidate()["release"]
        clicked: Counter[str] = Counter()
        for number, client in enumerate(clients):
            answer = search(address, client, text=sentences[number % len(sentences)])
            name = "bad" if Place.of(client, digest).position < SHARE else "good"
            assert answer["model"].startswith(f"bifocal version {2 if name == 'bad' else 1}, release ")
            assert {result["id"].partition("-")[0] for result in answer["results"]} <= {name}
            answers[name].append(answer)
            if number % 3 == 0 and answer["results"]:
                clicked[name] += 1
                for result in answer["results"][:2]:  # the second click does not count
                    post(address, "click", {"answer": answer["answer"], "item": result["id"]})
            if number % 50 == 0 and answer["results"]:
                again = search(address, client, text="a star", offset=10)
                assert (again["model"], again["answer"]) == (answer["model"], None)
                item = answer["results"][0]["id"]
                assert post(address, "explain", {"id": item, "text": "a red star"}, client)["id"] == item
        assert len(answers["bad"]) / len(clients) == pytest.approx(SHARE, abs=0.1)
        with pytest.raises(HTTPError, match="404"):
            post(address, "click", {"answer": answers["good"][0]["answer"], "item": "another"})
        with pytest.raises(HTTPError, match="400"):
            search(address, clients[0], text="a star", where={"no such column": 1})
        state = comparison(address)
        check_canary(state, answers, clicked)
        text = urlopen(f"{address}/metrics").read().decode()
        labels = f'arm="candidate",release="{answers["bad"][0]["model"]}"'
        assert f"bifocal_comparison_searches_total{{{labels}}} {len(answers['bad'])}.0" in text
        rule = tmp_path / "rule.yaml"
        rule.write_text(yaml.safe_dump(RULE))
        command = ["canary", "--service", address, "--rule", str(rule)]
        printed = CliRunner().invoke(main, [*command, "--report"], catch_exceptions=False)
        assert f"candidate bifocal version 2, release {digest[:12]}: {len(answers['bad'])} searches" in printed.output
        assert "withdraw" not in printed.output
        done = CliRunner().invoke(main, command, catch_exceptions=False)
        assert "withdraw: relevance is worse by " in done.output
        assert done.output.endswith("withdrawn: version 2 of bifocal\n")
        wait(lambda: comparison(address)["state"].startswith("version 2 was withdrawn: "))
        assert {search(address, client, text="a star")["model"] for client in clients[:20]} == {
            answers["good"][0]["model"]
        }
        assert comparison(address)["report"] == state["report"]
        done = CliRunner().invoke(main, command, catch_exceptions=False)
        assert "nothing to decide: version 2 was withdrawn" in done.output
    finally:
        server.kill()
    aliases = [get_version("bifocal", alias) for alias in ("champion", "candidate")]
    assert [version.number for version in aliases if version] == [1, 2]
    assert tags_of_candidate()["promotion"] == "withdrawn"


def check_canary(state: Any, answers: dict[str, list[Any]], clicked: Counter[str]) -> None:
    """Compare a report with one that is computed from the answers of the clients."""
    report = state["report"]
    metrics = {metric["name"]: metric for metric in report["metrics"]}
    for arm, name in (("champion", "good"), ("candidate", "bad")):
        found, counts = answers[name], report[f"counts_{arm}"]
        assert sum(counts["searches"]) == sum(counts["latency"]) == len(found)
        assert report[arm]["name"] == found[0]["model"]
        expected = {
            "errors": 0.0, "nothing_found": np.mean([not answer["results"] for answer in found]),
            "relevance": np.mean([relevance(answer) for answer in found]), "clicks": clicked[name] / len(found),
        }  # fmt: skip
        for metric, value in expected.items():
            assert metrics[metric][arm]["value"] == pytest.approx(value, abs=1e-6), metric
            low, high = metrics[metric][arm]["interval"]
            assert low < value < high
        assert 0 < metrics["latency_p50"][arm]["value"] <= metrics["latency_p99"][arm]["value"]
    assert metrics["relevance"]["comparison"]["interval"][1] < 0
    assert "overlap_at_10" not in metrics


def test_failures_and_delays_of_a_candidate_reach_no_client(store: mlflow.MlflowClient, sentences: list[str]) -> None:
    name_releases(BAD, GOOD)
    check_shadow(sentences)
    check_failing_canary()


def check_shadow(sentences: list[str]) -> None:
    """Compare the report of a shadow with the answers, and let the candidate fail and wait."""
    Damaged.go.clear()
    with serve("shadow", 1.0) as address:

        def report() -> Any:
            return comparison(address)["report"]

        expected, answers = ReleaseSource(CANDIDATE, None).load(), []
        for number in range(160):
            text = sentences[number % len(sentences)]
            answer = search(address, f"client {number}", text=text)
            assert answer["model"].startswith("bifocal version 2")
            assert answer["answer"] is None
            answers.append((text, answer))
            if number % 32 == 31:  # fewer than may wait
                search(address, f"client {number}", text=text, offset=10)  # a further page is not repeated
                wait(lambda: sum(report()["compared"]) == len(answers))
        overlaps, relevances = [], []
        for text, answer in answers:
            hits = expected.search(Query(expected.embed_sentences([text])[0], text), 10)
            overlaps.append(
                overlap_at_10([result["id"] for result in answer["results"]], [hit.item_id for hit in hits])
            )
            relevances.append(hits[0].probability or 0 if hits else 0)
        metrics = {metric["name"]: metric for metric in report()["metrics"]}
        assert metrics["overlap_at_10"]["comparison"]["value"] == pytest.approx(np.mean(overlaps), abs=1e-6)
        assert metrics["relevance"]["candidate"]["value"] == pytest.approx(np.mean(relevances), abs=1e-4)
        found = [relevance(answer) for _, answer in answers]
        assert metrics["relevance"]["champion"]["value"] == pytest.approx(np.mean(found), abs=1e-6)
        assert metrics["clicks"]["champion"] is None
        decision = rules.decide(rules.Rule.model_validate(RULE), Report.from_json(report()))
        assert (decision.verdict, decision.reasons) == ("promote", [])
        before = search(address, "a", text="fail")
        wait(lambda: sum(report()["counts_candidate"]["errors"]) == 1)
        assert before["model"].startswith("bifocal version 2")
        for _ in range(WAITING + 10):
            search(address, "a", text="wait")
        stuck = report()
        # The thread has one search, and the task of the queue takes it out: the others wait or are dropped.
        assert 8 <= stuck["dropped"] <= 10
        assert sum(stuck["compared"]) == len(answers)
        Damaged.go.set()
        wait(lambda: sum(report()["compared"]) == len(answers) + WAITING + 10 - stuck["dropped"])
        text_metrics = urlopen(f"{address}/metrics").read().decode()
        assert f"bifocal_comparison_dropped_total {stuck['dropped']}.0" in text_metrics


def check_failing_canary() -> None:
    """Let a canary fail, promote it, return to the former champion, and take the candidate away."""
    with serve("canary", 1.0) as address:
        assert search(address, "a", text="a star")["model"].startswith("bifocal version 1")
        assert search(address, "a", text="fail")["model"].startswith("bifocal version 2")
        counts = comparison(address)["report"]["counts_candidate"]
        assert (sum(counts["searches"]), sum(counts["errors"]), sum(counts["latency"])) == (2, 1, 1)
        move_alias(GOOD)
        wait(lambda: comparison(address)["state"] == "version 1 is the champion")
        wait(lambda: search(address, "a", text="fail 2")["model"].startswith("bifocal version 1"))
        move_alias(BAD)
        wait(lambda: comparison(address)["state"] == "running")
        mlflow.MlflowClient().delete_registered_model_alias("bifocal", "candidate")
        wait(lambda: "no version of bifocal with the alias candidate" in comparison(address)["state"])
