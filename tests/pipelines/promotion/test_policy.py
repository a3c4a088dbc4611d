"""The rules of promotion.yaml on synthetic ranks."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.promotion.candidate import Evidence
from pipelines.promotion.policy import decide

sys.path.insert(0, str(Path(__file__).parents[1]))
from synthetic import RULES, ranks


def evidence(quality: float, **changes: Any) -> Evidence:
    given = Evidence(ranks(quality), frozenset({"image 1000"}), parity=1e-6, latency_ms=1.0, size_mb=1.0)
    return replace(given, **changes)


def test_a_better_candidate_is_promoted_and_a_worse_or_equal_one_is_not() -> None:
    assert decide(RULES, evidence(0.9), evidence(0.3)).promoted
    for quality in (0.3, 0.9):
        made = decide(RULES, evidence(quality), evidence(0.9))
        assert not made.promoted
        assert "must be above 0" in made.reasons[0]


def test_the_interval_holds_the_difference_that_was_measured() -> None:
    figures = decide(RULES, evidence(0.7), evidence(0.5)).figures
    expected = sum(
        100 * ((a["rank"] < k).mean() - (b["rank"] < k).mean())
        for k in RULES.recall_at
        for (_, a), (_, b) in zip(ranks(0.7).groupby("direction"), ranks(0.5).groupby("direction"), strict=True)
    )
    assert figures["gain"] == pytest.approx(expected)
    assert figures["gain.low"] < figures["gain"] < figures["gain.high"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parity": 1.0}, "parity is 1"),
        ({"parity": float("nan")}, "parity is nan"),
        ({"backbone_parity": 1.0}, "backbone_parity is 1"),
        ({"latency_ms": 1e6}, "latency_ms is"),
        ({"size_mb": 1e6}, "size_mb is"),
        ({"ranks": ranks(0.9).assign(rank=np.nan)}, "240 of 240 ranks are not finite"),
        ({"trained_on": frozenset({"image 3", "image 4"})}, "trained on 2 images of the test set"),
    ],
)
@pytest.mark.parametrize("champion", [None, evidence(0.1)])
def test_every_fault_is_a_reason(changes: dict[str, Any], expected: str, champion: Evidence | None) -> None:
    made = decide(RULES, evidence(0.9, **changes), champion)
    assert len(made.reasons) == 1
    assert expected in made.reasons[0]


def test_other_queries_cannot_be_compared() -> None:
    other = ranks(0.9).assign(content="other")
    made = decide(RULES, evidence(0.9, ranks=other), evidence(0.1))
    assert "0 of the champion's 240 queries are among the candidate's 240" in made.reasons[0]


def test_a_guard_holds_a_figure_that_the_sum_hides() -> None:
    champion, candidate = ranks(0.5), ranks(0.5)
    captions = candidate["direction"] == "caption_retrieval"
    champion.loc[captions, "rank"], champion.loc[~captions, "rank"] = 0.0, 50.0
    candidate.loc[captions, "rank"], candidate.loc[~captions, "rank"] = 5.0, 0.0
    made = decide(RULES, evidence(0, ranks=candidate), evidence(0, ranks=champion))
    assert made.figures["gain.low"] > 0
    assert made.reasons == ["caption_retrieval.R@1 falls by 100.00, 2 is allowed"]


def pointing(accuracy: float) -> pd.DataFrame:
    hits = [0.0 if number < 100 * accuracy else 1.0 for number in range(100)]
    names = [str(number) for number in range(100)]
    rows = pd.DataFrame({"direction": "pointing", "query": names, "image_id": names, "content": names, "rank": hits})
    return pd.concat([ranks(0.9 if accuracy < 0.5 else 0.2), rows])


def test_pointing_must_not_fall_where_both_have_it() -> None:
    made = decide(RULES, evidence(0, ranks=pointing(0.4)), evidence(0, ranks=pointing(0.6)))
    assert made.reasons == ["pointing falls by 20.00, 2 is allowed"]
    assert decide(RULES, evidence(0, ranks=pointing(0.4)), evidence(0.2)).promoted
