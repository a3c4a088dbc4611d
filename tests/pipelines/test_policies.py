"""The files promotion.yaml and canary.yaml: their values are checked, and the number of images has
a default."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.policies import PROMOTION, load_canary, load_promotion


def test_the_default_number_of_images_is_500(tmp_path: Path) -> None:
    values = yaml.safe_load(PROMOTION.read_text())
    assert values.pop("min_images") < 500, "the drawn scenes have fewer test images"
    (tmp_path / "promotion.yaml").write_text(yaml.safe_dump(values))
    assert load_promotion(tmp_path / "promotion.yaml").min_images == 500


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"looks": 0}, "looks: Input should be greater than or equal to 1"),
        ({"floors": {}}, "floors: Dictionary should have at least 1 item"),
        ({"max_drops": {"recal_sum": 1.0}}, "max_drops.recal_sum"),
        ({"confidence": 95.0}, "confidence: Input should be less than 1"),
        ({"previous": "champion"}, "need three different aliases"),
        ({"candidate": "champion"}, "need three different aliases"),
        ({"latency_ms": 100.0}, "latency_ms: Extra inputs are not permitted"),
    ],
)
def test_invalid_policies_are_errors(
    changes: dict[str, object], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "promotion.yaml").write_text(
        yaml.safe_dump(yaml.safe_load(PROMOTION.read_text()) | changes)
    )
    with pytest.raises(ValueError, match=expected):
        load_promotion(tmp_path / "promotion.yaml")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"min_searches": 5000}, "min_searches is 5000, at most searches, 2000"),
        ({"max_rises": {}, "max_drops": {}, "max_ratios": {}}, "name a condition"),
        ({"max_drops": {"clicks_": 0.1}}, "'relevance' or 'clicks'"),
    ],
)
def test_a_file_of_a_rule_that_cannot_decide_is_refused(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    rule, file = load_canary(), tmp_path / "rule.yaml"
    file.write_text(json.dumps(asdict(rule)))
    assert load_canary(file) == rule
    file.write_text(json.dumps(asdict(rule) | change))
    with pytest.raises(ValueError, match=reason):
        load_canary(file)
