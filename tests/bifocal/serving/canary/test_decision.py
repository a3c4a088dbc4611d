"""Verdicts on reports of simulated clients."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bifocal.serving.canary.decision import Rule, decide
from bifocal.serving.canary.report import GROUPS, Report
from tests.bifocal.serving.canary.reports import BAD, GOOD, RELEASES, report_of

RULE = Rule(
    searches=2000,
    min_searches=200,
    error_rate=0.05,
    max_rises={"errors": 0.005, "nothing_found": 0.03},
    max_drops={"relevance": 0.03},
    max_ratios={"latency_p50": 1.5, "latency_p99": 2.0},
)


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
    champion: dict[str, float],
    candidate: dict[str, float],
    searches: int,
    verdict: str,
    reason: str | None,
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
                counts.nothing = np.minimum(
                    counts.searches, counts.nothing + generator.poisson(0.2, GROUPS)
                )
            if decide(rule, report).verdict == "withdraw":
                withdrawn += 1
                break
    assert withdrawn <= 0.05 * 150


def test_clicks_decide_if_the_rule_names_them_and_clients_send_them() -> None:
    rule = replace(RULE, max_drops={"clicks": 0.05})
    assert decide(rule, report_of(GOOD, GOOD)).reasons == [
        "clicks was not measured, or by too few clients"
    ]
    fewer = report_of(GOOD | {"clicks": 0.5}, GOOD | {"clicks": 0.3})
    assert decide(rule, fewer).verdict == "withdraw"
    assert (
        decide(rule, report_of(GOOD | {"clicks": 0.3}, GOOD | {"clicks": 0.5})).verdict == "promote"
    )


def test_a_rule_that_cannot_decide_is_refused() -> None:
    with pytest.raises(ValueError, match="min_searches is 5000, at most searches, 2000"):
        replace(RULE, min_searches=5000)
    with pytest.raises(ValueError, match="name a condition"):
        replace(RULE, max_rises={}, max_drops={}, max_ratios={})
