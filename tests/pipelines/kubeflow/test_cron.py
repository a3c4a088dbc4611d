"""Cron expressions of six fields."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.kubeflow.cron import FIELDS, check_cron, next_start


@given(st.data())
def test_every_expression_within_the_ranges_is_valid(data: st.DataObject) -> None:
    parts = []
    for name, low, high, words in FIELDS:
        start = data.draw(st.integers(low, 28 if name == "day" else high))
        end = data.draw(st.integers(start, high))
        forms = [
            "*",
            "?",
            str(start),
            f"{start}-{end}",
            f"{start},{end}",
            f"*/{end - start + 1}",
            f"{start}/2",
        ]
        parts.append(data.draw(st.sampled_from([*forms, *words])))
    expression = " ".join(parts)
    assert check_cron(expression) == expression


@pytest.mark.parametrize(
    ("expression", "start"),
    [
        ("0 0 3 * * 1", "2026-12-07 03:00:00"),  # a Monday; the start of the day itself is over
        ("0 0 4 * * 1", "2026-11-30 04:00:00"),
        ("30 59 23 31 12 ?", "2026-12-31 23:59:30"),
        ("0 0 1 1 jan *", "2027-01-01 01:00:00"),
        ("0 0 0 29 2 *", None),  # 2028
    ],
)
def test_the_next_start_is_after_now(expression: str, start: str | None) -> None:
    found = next_start(expression, datetime(2026, 11, 30, 3, 0, tzinfo=UTC))
    assert found == (start and datetime.fromisoformat(start).replace(tzinfo=UTC))
