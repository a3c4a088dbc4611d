"""Promotion policy on synthetic ranks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.promotion.candidate import VersionMetrics
from pipelines.promotion.policy import decide
from tests.pipelines.synthetic_ranks import POLICY, ranks


def version(recall: float, **changes: Any) -> VersionMetrics:
    metrics = VersionMetrics(ranks(recall), frozenset({"image 1000"}), parity=1e-6, latency_ms=1.0, size_mb=1.0)
    return replace(metrics, **changes)


def test_decide_promotes_a_better_candidate_only() -> None:
    assert decide(POLICY, version(0.9), version(0.3)).promoted
    for recall in (0.3, 0.9):
        decision = decide(POLICY, version(recall), version(0.9))
        assert not decision.promoted
        assert "must be above 0" in decision.reasons[0]


def test_gain_interval_contains_the_measured_gain() -> None:
    metrics = decide(POLICY, version(0.7), version(0.5)).metrics
    expected = sum(
        100 * ((a["rank"] < k).mean() - (b["rank"] < k).mean())
        for k in POLICY.recall_at
        for (_, a), (_, b) in zip(ranks(0.7).groupby("direction"), ranks(0.5).groupby("direction"), strict=True)
    )
    assert metrics["gain"] == pytest.approx(expected)
    assert metrics["gain.low"] < metrics["gain"] < metrics["gain.high"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parity": 1.0}, "parity is 1"),
        ({"parity": float("nan")}, "parity is nan"),
        ({"backbone_parity": 1.0}, "backbone_parity is 1"),
        ({"latency_ms": 1e6}, "latency_ms is"),
        ({"size_mb": 1e6}, "size_mb is"),
        ({"ranks": ranks(0.9).assign(rank=np.nan)}, "240 of 240 ranks are not finite"),
        ({"training_images": frozenset({"image 3", "image 4"})}, "trained on 2 images of the test set"),
    ],
)
@pytest.mark.parametrize("champion", [None, version(0.1)])
def test_each_violated_limit_is_a_reason(
    changes: dict[str, Any], expected: str, champion: VersionMetrics | None
) -> None:
    decision = decide(POLICY, version(0.9, **changes), champion)
    assert len(decision.reasons) == 1
    assert expected in decision.reasons[0]


def test_decide_rejects_a_candidate_with_other_queries() -> None:
    other = ranks(0.9).assign(content="other")
    decision = decide(POLICY, version(0.9, ranks=other), version(0.1))
    assert "candidate's 240 queries and the champion's 240 have 0 in common" in decision.reasons[0]


def test_max_drop_of_one_direction_blocks_a_gain_in_the_sum() -> None:
    champion, candidate = ranks(0.5), ranks(0.5)
    captions = candidate["direction"] == "caption_retrieval"
    champion.loc[captions, "rank"], champion.loc[~captions, "rank"] = 0.0, 50.0
    candidate.loc[captions, "rank"], candidate.loc[~captions, "rank"] = 5.0, 0.0
    decision = decide(POLICY, version(0, ranks=candidate), version(0, ranks=champion))
    assert decision.metrics["gain.low"] > 0
    assert decision.reasons == ["caption_retrieval.R@1 drops by 100.00, the limit is 2"]


def with_pointing(accuracy: float) -> pd.DataFrame:
    """Ranks with pointing hits; the recall is the higher, the lower the accuracy."""
    misses = [0.0 if number < 100 * accuracy else 1.0 for number in range(100)]
    names = [str(number) for number in range(100)]
    rows = pd.DataFrame({"direction": "pointing", "query": names, "image_id": names, "content": names, "rank": misses})
    return pd.concat([ranks(0.9 if accuracy < 0.5 else 0.2), rows])


def test_max_drop_of_pointing_applies_if_both_versions_have_it() -> None:
    decision = decide(POLICY, version(0, ranks=with_pointing(0.4)), version(0, ranks=with_pointing(0.6)))
    assert decision.reasons == ["pointing drops by 20.00, the limit is 2"]
    assert decide(POLICY, version(0, ranks=with_pointing(0.4)), version(0.2)).promoted
