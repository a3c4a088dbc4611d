"""A candidate that fails and waits, as the shadow and as the canary of a service."""

from typing import Any
from urllib.request import urlopen

import mlflow
import numpy as np
import pytest

from bifocal.search.query import EncodedQuery
from bifocal.serving.canary.decision import Rule, decide
from bifocal.serving.canary.report import Report, overlap_at_10
from bifocal.serving.service.candidate import WAITING
from pipelines.app.serve_sources import ReleaseSource
from tests.pipelines.app.comparison.comparing import (
    BAD,
    CANDIDATE,
    GOOD,
    RULE,
    Damaged,
    comparison,
    name_releases,
    relevance,
    search,
    serve,
)
from tests.pipelines.releases import move_alias, wait


@pytest.mark.slow
def test_failures_and_delays_of_a_candidate_reach_no_client(
    store: mlflow.MlflowClient, sentences: list[str]
) -> None:
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
                search(
                    address, f"client {number}", text=text, offset=10
                )  # a further page is not repeated
                wait(lambda: sum(report()["compared"]) == len(answers))
        overlaps, relevances = [], []
        for text, answer in answers:
            hits = expected.search.rank(
                EncodedQuery(expected.embedder.embed_sentences([text])[0], text), 10
            )
            overlaps.append(
                overlap_at_10(
                    [result["id"] for result in answer["results"]], [hit.id for hit in hits]
                )
            )
            relevances.append(hits[0].probability or 0 if hits else 0)
        metrics = {metric["name"]: metric for metric in report()["metrics"]}
        assert metrics["overlap_at_10"]["comparison"]["value"] == pytest.approx(
            np.mean(overlaps), abs=1e-6
        )
        assert metrics["relevance"]["candidate"]["value"] == pytest.approx(
            np.mean(relevances), abs=1e-4
        )
        found = [relevance(answer) for _, answer in answers]
        assert metrics["relevance"]["champion"]["value"] == pytest.approx(np.mean(found), abs=1e-6)
        assert metrics["clicks"]["champion"] is None
        decision = decide(Rule(**RULE), Report.from_json(report()))
        assert (decision.verdict, decision.reasons) == ("promote", [])
        before = search(address, "a", text="a failing star")
        wait(lambda: sum(report()["counts_candidate"]["errors"]) == 1)
        assert before["model"].startswith("bifocal version 2")
        for _ in range(WAITING + 10):
            search(address, "a", text="a waiting star")
        stuck = report()
        # The thread has one search, and the task of the queue takes it out: the others wait or are
        # dropped.
        assert 8 <= stuck["dropped"] <= 10
        assert sum(stuck["compared"]) == len(answers)
        Damaged.go.set()
        wait(lambda: sum(report()["compared"]) == len(answers) + WAITING + 10 - stuck["dropped"])
        text_metrics = urlopen(f"{address}/metrics").read().decode()
        assert f"bifocal_comparison_dropped_total {stuck['dropped']}.0" in text_metrics


def check_failing_canary() -> None:
    """Let a canary fail, promote it, return to the previous champion, and take the candidate
    away."""
    with serve("canary", 1.0) as address:
        assert search(address, "a", text="a star")["model"].startswith("bifocal version 1")
        assert search(address, "a", text="a failing star")["model"].startswith("bifocal version 2")
        counts = comparison(address)["report"]["counts_candidate"]
        assert (sum(counts["searches"]), sum(counts["errors"]), sum(counts["latency"])) == (2, 1, 1)
        move_alias(GOOD)
        wait(lambda: comparison(address)["state"] == "version 1 is the champion")
        wait(lambda: search(address, "a", text="a star")["model"].startswith("bifocal version 1"))
        move_alias(BAD)
        wait(lambda: comparison(address)["state"] == "running")
        mlflow.MlflowClient().delete_registered_model_alias("bifocal", "candidate")
        wait(
            lambda: "no version of bifocal with the alias candidate" in comparison(address)["state"]
        )
