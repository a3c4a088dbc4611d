"""Sums of the reports of replicas, and their JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bifocal.serving.canary.report import EDGES, Report
from tests.bifocal.serving.canary.reports import BAD, GOOD, RELEASES, report_of


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
    refreshed = replace(second, champion=replace(RELEASES[0], digest="refreshed"))
    assert (first + refreshed).counts_champion.searches.sum() == 800
    assert first.id != second.id
    ids = ("../../outside", "/tmp/outside", "", "a" * 31, "g" * 32, "a" * 32 + "\n", None, 1)
    damages = [{"mode": "x"}, {"overlap": [1]}, {"counts_champion": {}}, {"candidate": None}]
    for damage in (*damages, *({"id": name} for name in ids)):
        with pytest.raises(ValueError, match=r"not a report of bifocal serve"):
            Report.from_json(first.to_json() | damage)


def test_the_edges_of_latencies_increase() -> None:
    assert (np.diff(EDGES) > 0).all()
