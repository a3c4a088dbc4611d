"""``bifocal serve --canary`` with two real releases over HTTP: shares, report and withdrawal."""

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

from bifocal.serving.canary.report import ClientBucket
from pipelines.__main__ import main
from runtime.mlflow import get_version, version_tags
from tests.bifocal.serving.server import Server
from tests.mlflow_server import free_port
from tests.pipelines.app.comparison.comparing import (
    BAD,
    CANDIDATE,
    CHAMPION,
    GOOD,
    RULE,
    comparison,
    name_releases,
    post,
    relevance,
    search,
)
from tests.pipelines.releases import wait

SHARE = 0.4


def tags_of_candidate() -> dict[str, str]:
    version = get_version("bifocal", "candidate")
    assert version is not None
    return version_tags(version)


@pytest.mark.slow
def test_a_worse_canary_answers_its_share_until_the_rule_withdraws_it(
    store: mlflow.MlflowClient, sentences: list[str], tmp_path: Path
) -> None:
    name_releases(GOOD, BAD)
    releases = ("--model", CHAMPION, "--canary", CANDIDATE, "--share", SHARE, "--poll", 0.2)
    server = Server(
        free_port(), tmp_path / "log.jsonl", "--deletions", tmp_path / "deleted", *releases
    )
    server.start()
    address = f"http://127.0.0.1:{server.port}"
    try:
        server.wait_until_ready()
        wait(lambda: comparison(address)["state"] == "running")
        report = comparison(address)["report"]
        assert [report[arm]["version"] for arm in ("champion", "candidate")] == [1, 2]
        assert (
            sum(report["counts_champion"]["searches"])
            == sum(report["counts_candidate"]["searches"])
            == 0
        )
        answers: dict[str, list[Any]] = {"good": [], "bad": []}
        clients = [f"client {number}" for number in range(200)]
        digest = tags_of_candidate()["release"]
        clicked: Counter[str] = Counter()
        for number, client in enumerate(clients):
            answer = search(address, client, text=sentences[number % len(sentences)])
            name = "bad" if ClientBucket.of(client, digest).position < SHARE else "good"
            assert answer["model"].startswith(
                f"bifocal version {2 if name == 'bad' else 1}, release "
            )
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
                assert (
                    post(address, "explain", {"id": item, "text": "a red star"}, client)["id"]
                    == item
                )
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
        assert (
            f"candidate bifocal version 2, release {digest[:12]}: {len(answers['bad'])} searches"
            in printed.output
        )
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
            "errors": 0.0,
            "nothing_found": np.mean([not answer["found"] for answer in found]),
            "relevance": np.mean([relevance(answer) for answer in found]),
            "clicks": clicked[name] / len(found),
        }
        for metric, value in expected.items():
            assert metrics[metric][arm]["value"] == pytest.approx(value, abs=1e-6), metric
            low, high = metrics[metric][arm]["interval"]
            assert low < value < high
        assert 0 < metrics["latency_p50"][arm]["value"] <= metrics["latency_p99"][arm]["value"]
    assert metrics["relevance"]["comparison"]["interval"][1] < 0
    assert "overlap_at_10" not in metrics
