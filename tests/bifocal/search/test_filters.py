"""Ranges on texts, zones and large numbers: what is compared, and what is refused."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.durable import plain
from bifocal.search.filters import matching_rows

NUMBERS = st.lists(st.integers(0, 99_999), min_size=1, max_size=8)
SPELLINGS: list[Any] = [
    "${}".format, "{} kg".format, "{}%".format, "{}.50 €".format, "-{}".format, "\u2212{}".format,
    "{:05}".format, "{:,}".format, "IMG_{:05}".format, "0x{:x}".format, "no {}".format, "{}".format,
]  # fmt: skip
DAYS = st.dates(date(1990, 1, 1), date(2030, 12, 31))
DATES = [
    "%d.%m.%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%d %b %Y",
    "%B %d, %Y",
    "%d/%m/%y",
    "%Y-%m-%d",
    "%Y-%m",
]


def rows_of(values: list[Any], where: Any) -> list[bool] | None:
    """Return the rows of a range, None if it is refused."""
    items = pa.table({"meta.v": pa.array(values)})
    try:
        return matching_rows(items, {"v": where}).tolist()
    except ValueError:
        return None


@given(numbers=NUMBERS, limit=st.integers(0, 99_999), spell=st.sampled_from(SPELLINGS))
def test_a_range_of_amounts_has_their_order_or_is_refused(
    numbers: list[int], limit: int, spell: Any
) -> None:
    sign = -1 if spell(1)[0] in "-\u2212" else 1
    found = rows_of([*map(spell, numbers), None], {"min": spell(limit)})
    assert found in (None, [*(sign * number >= sign * limit for number in numbers), False])


@given(days=st.lists(DAYS, min_size=1, max_size=6), limit=DAYS, form=st.sampled_from(DATES))
def test_a_range_of_days_as_texts_has_their_order_or_is_refused(
    days: list[date], limit: date, form: str
) -> None:
    exact = "%d" in form
    first = limit if exact else limit.replace(day=1)
    found = rows_of([f"{day:{form}}" for day in days], {"min": f"{limit:{form}}"})
    assert found in (None, [day >= first for day in days])


@given(texts=st.lists(st.text("abcXYZ "), min_size=1), limit=st.text("abcXYZ ", min_size=1))
def test_texts_without_digits_are_compared(texts: list[str], limit: str) -> None:
    assert rows_of(texts, {"max": limit}) == [text <= limit for text in texts]


@given(
    values=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1),
    limit=st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
)
def test_whole_numbers_are_compared_exactly(values: list[int | None], limit: Any) -> None:
    items = pa.table({"meta.v": pa.array(values, pa.int64())})
    for key, fits in (("min", lambda value: value >= limit), ("max", lambda value: value <= limit)):
        expected = [value is not None and fits(value) for value in values]
        assert matching_rows(items, {"v": {key: limit}}).tolist() == expected
    expected = [value is not None and value == limit for value in values]
    assert matching_rows(items, {"v": limit}).tolist() == expected


@pytest.mark.parametrize("zone", ["Europe/Rome", "Asia/Kolkata", "+02:00", "America/New_York"])
@given(moment=st.datetimes(datetime(1971, 1, 1), datetime(2037, 12, 30)))
def test_a_day_is_that_of_the_clock_of_its_zone(zone: str, moment: datetime) -> None:
    own = pa.lib.string_to_tzinfo(zone)
    seen = moment.replace(tzinfo=UTC).astimezone(own)
    column = pa.array([seen, seen + timedelta(days=2)], pa.timestamp("us", zone))
    items = pa.table({"meta.v": column})
    assert matching_rows(items, {"v": f"{seen:%Y-%m-%d}"}).tolist() == [True, False]
    stamp = moment.replace(microsecond=0).isoformat() + "Z"
    assert matching_rows(items, {"v": {"min": stamp}}).tolist() == [True, True]


def test_a_column_without_values_has_no_row() -> None:
    items = pa.table({"meta.v": pa.nulls(2)})
    assert not matching_rows(items, {"v": "x"}).any()
    assert not matching_rows(items, {"v": {"min": 1}}).any()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_whole_numbers_of_answers_are_conditions(values: list[int]) -> None:
    items = pa.table({"meta.id": pa.array(values, pa.int64())})
    for value in values:
        shown = plain(value, safe=True)
        expected = [other == value for other in values]
        assert matching_rows(items, {"id": shown}).tolist() == expected
        assert matching_rows(items, {"id": {"min": shown, "max": shown}}).tolist() == expected
