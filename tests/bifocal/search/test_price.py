"""Work of queries: counted before they run, and below a second for every query that is accepted."""

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

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

COUNT, DIMENSION = 200_000, 8
START = datetime(2000, 1, 1)
SENTENCE = "a dog runs on the grass beside child in red coat while two people look at sea"
WORDS = SENTENCE.split(" ")
SECONDS = 1.0


def table(count: int, columns: int = 1) -> pa.Table:
    """Items with a caption, and columns of each kind."""
    numbers = np.arange(count)
    captions = [[" ".join(WORDS[(row * k + k) % len(WORDS)] for k in range(12))] for row in numbers]
    kinds = {
        "time": pa.array([START + timedelta(minutes=7 * int(row)) for row in numbers]),
        "text": pa.array([f"text {row % 5000:04}" for row in numbers]),
        "kind": pa.array([f"kind {row % 7}" for row in numbers]).dictionary_encode(),
        "number": pa.array(numbers),
        "price": pa.array(numbers / 7),
        "flag": pa.array(numbers % 2 == 0),
    }
    named = {
        f"meta.{name}{number or ''}": kind
        for number in range(columns)
        for name, kind in kinds.items()
    }
    ids = pa.array([str(row) for row in numbers])
    return pa.table({"item_id": ids, "captions": pa.array(captions), **named})


def search_of(count: int, columns: int = 1) -> Search:
    vectors = np.random.default_rng(0).standard_normal((count, DIMENSION)).astype(np.float16)
    return Search(SearchIndex(table(count, columns), vectors))


@pytest.fixture(scope="module")
def large() -> Search:
    """A search in 200,000 items, with its words."""
    search = search_of(COUNT, columns=40)
    search.index.keywords = Keywords.of(table(COUNT))
    return search


def day(number: int) -> str:
    return (START + timedelta(days=number)).strftime("%Y-%m-%d")


VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "time": st.integers(0, 9000).map(day),
    "text": st.integers(0, 5000).map("text {:04}".format),
    "kind": st.integers(0, 9).map("kind {}".format),
    "number": st.integers(-9, COUNT),
    "price": st.floats(0, COUNT),
    "flag": st.booleans(),
}


@st.composite
def queries(draw: st.DrawFn) -> EncodedQuery:
    where: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=6, unique=True)):
        value = draw(VALUES[name])
        several = [draw(VALUES[name])] + [value] * draw(st.sampled_from([0, 10, 4500, 19_000]))
        ordered = name not in ("flag", "kind", "text")
        options = [value, several, *([{"min": value}] if ordered else [])]
        condition = draw(st.sampled_from(options))
        repeats = draw(st.sampled_from([1, 1, 1, 40]))
        where |= {f"{name}{number or ''}": condition for number in range(repeats)}
    words = draw(st.lists(st.sampled_from([*WORDS, "x1-y2", "t-shirt"]), min_size=1))
    text = " ".join(words * draw(st.sampled_from([1, 1000])))[:10_000]
    mode = draw(st.sampled_from(["vectors", "hybrid"]))
    group = draw(st.sampled_from([None, *VALUES]))
    vector = np.ones(DIMENSION, np.float32)
    return EncodedQuery(vector, text, mode=mode, where=where, group=group)


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
