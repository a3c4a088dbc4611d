"""Work of queries: counted before they run, and below a second for every query that is accepted."""

import time
from contextlib import suppress
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bifocal.search.filters import matching_rows
from bifocal.search.index.index import SearchIndex
from bifocal.search.keywords import Keywords
from bifocal.search.price import MOST, QUICK, check_price, filter_price
from bifocal.search.query import EncodedQuery
from bifocal.search.search import Search
from tests.bifocal.search.priced import (
    COUNT,
    DIMENSION,
    SECONDS,
    START,
    day,
    queries,
    table,
)


def search_of(count: int, columns: int = 1) -> Search:
    vectors = np.random.default_rng(0).standard_normal((count, DIMENSION)).astype(np.float16)
    return Search(SearchIndex(table(count, columns), vectors))


@pytest.fixture(scope="module")
def large() -> Search:
    """A search in 200,000 items, with its words."""
    search = search_of(COUNT, columns=40)
    search.index.keywords = Keywords.of(table(COUNT))
    return search


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(query=queries())
def test_an_accepted_query_takes_less_than_a_second(large: Search, query: EncodedQuery) -> None:
    start = time.process_time()
    with suppress(ValueError):
        large.price(query)
        large.rank(query, 100, 900)
    assert time.process_time() - start < SECONDS


def test_prices_choose_the_lane_and_refuse() -> None:
    items = table(2)
    plain = filter_price(items, {"time": ["2000-01-01"] * 9, "text": "a"})
    assert 0 < plain == check_price(plain, items) <= QUICK
    assert filter_price(items, None) == filter_price(items, {}) == 0
    assert filter_price(items, {"time": ["2000"] * 4500}) > QUICK
    with pytest.raises(ValueError, match="name fewer columns or values"):
        check_price(filter_price(items, {"number": [1] * 99_999}), items)
    with pytest.raises(ValueError, match="no metadata 'other'"):
        filter_price(items, {"other": 1})
    large = pa.table({"meta.text": pa.nulls(20_000_000, pa.string())})
    steps = filter_price(large, {"text": {"min": "a", "max": "b"}})
    assert MOST < steps == check_price(steps, large)  # a large collection can be filtered, too


@given(st.lists(st.integers(0, 4000)), st.lists(st.none() | st.integers(0, 4000), min_size=1))
def test_times_of_many_periods_are_those_of_each(days: list[int], rows: list[int | None]) -> None:
    periods = [day(number)[: (10, 7, 4)[number % 3]] for number in days]
    times = [None if row is None else START + timedelta(days=row, hours=row % 24) for row in rows]
    items = pa.table({"meta.time": pa.array(times, pa.timestamp("us"))})
    expected = [
        moment is not None and any(moment.isoformat().startswith(period) for period in periods)
        for moment in times
    ]
    assert matching_rows(items, {"time": periods}).tolist() == expected
