"""The exact index against loops in float64, its files, and its filters."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bifocal.search import Search, SearchIndex
from bifocal.search.collection.format import ModelIdentity
from bifocal.search.filters import matching_rows
from bifocal.search.index import exact
from bifocal.search.index.build import index_of_collection
from bifocal.search.index.files import IndexDescription
from bifocal.search.vectors import FileVectors
from tests.bifocal.small_collection import write_collection


def example(
    items: int = 50, dimension: int = 8, seed: int = 0
) -> tuple[SearchIndex, NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    index = SearchIndex.of(
        [f"image {row}" for row in range(items)], random.normal(size=(items, dimension))
    )
    return index, random.normal(size=(3, dimension))


def reference(
    index: SearchIndex, query: NDArray[Any], allowed: list[int], bias: list[float]
) -> list[tuple[int, float]]:
    """Return rows and scores, best first, by Python floats."""
    unit = (query / np.linalg.norm(query)).astype(np.float32).tolist()
    scores = {
        row: sum(a * float(b) for a, b in zip(unit, index.vectors[row].tolist(), strict=True))
        for row in allowed
    }
    return [
        (row, scores[row])
        for row in sorted(allowed, key=lambda row: (-scores[row] - bias[row], row))
    ]


@given(
    items=st.integers(1, 60),
    k=st.integers(1, 70),
    offset=st.integers(0, 65),
    block=st.sampled_from([1, 7, 64]),
    seed=st.integers(0, 99),
    corrected=st.booleans(),
    every=st.integers(1, 5),
)
def test_search_sorts_all_scores(
    items: int, k: int, offset: int, block: int, seed: int, corrected: bool, every: int
) -> None:
    index, queries = example(items, seed=seed)
    bias = np.random.default_rng(seed).normal(size=items).astype(np.float32)
    excluded = [row for row in range(items) if row % every]
    index = SearchIndex(index.items, index.vectors, bias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "BLOCK", block)
        patch.setattr(exact, "QUERIES", 2)
        patch.setattr(exact, "SAMPLE", 4)
        found = Search(index).batch(
            queries,
            k,
            offset=offset,
            exclude=[index.ids[row] for row in excluded],
            sentences=corrected,
        )
    for query, hits in zip(queries, found, strict=True):
        allowed = [row for row in range(items) if row not in excluded]
        expected = reference(index, query, allowed, bias.tolist() if corrected else [0.0] * items)[
            offset : offset + k
        ]
        assert [hit.row for hit in hits] == [row for row, _ in expected]
        added = bias if corrected else np.zeros(items)
        shown = [score + float(added[row]) for row, score in expected]
        assert [hit.score for hit in hits] == pytest.approx(shown, abs=1e-9)
        assert [hit.id for hit in hits] == [index.ids[row] for row, _ in expected]


def test_all_finite_halves_become_the_same_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "CACHED", 5)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].reshape(-1, 2)
    converted = exact.to_float32(halves, np.empty(halves.shape, dtype=np.float32))
    assert converted.dtype == np.float32
    np.testing.assert_array_equal(converted, halves.astype(np.float32))
    assert (np.signbit(converted) == np.signbit(halves)).all()


@pytest.mark.parametrize("block", [2, 3, 100])
def test_equal_scores_keep_the_order_of_the_items(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "BLOCK", block)
    monkeypatch.setattr(exact, "SPARE", 0)
    index = SearchIndex.of(list("abcdefgh"), np.tile([[1.0, 0.2]], (8, 1)))
    assert [hit.id for hit in Search(index).batch(np.array([[1.0, 0.0]]), 3)[0]] == ["a", "b", "c"]


def test_index_is_the_same_after_write_and_open(tmp_path: Path) -> None:
    index, queries = example()
    items = index.items.append_column("meta.year", pa.array(range(50)))
    description = IndexDescription(8, 50, ModelIdentity("mine", "3", "ab" * 32), {"size": 64})
    index = SearchIndex(items, index.vectors, np.arange(50, dtype=np.float32), description)
    index.write(tmp_path)
    opened = SearchIndex.open(tmp_path, model="ab" * 32)
    assert isinstance(opened.vectors, FileVectors)
    assert opened.description == description
    for arguments in ({}, {"sentences": True}, {"where": {"year": [7, 9]}}):
        assert Search(opened).batch(queries, 5, **arguments) == Search(index).batch(
            queries, 5, **arguments
        )
    with pytest.raises(
        ValueError, match=r"model 'mine' version 3 with hash abababababab, but .* hash cdcdcdcdcdcd"
    ):
        SearchIndex.open(tmp_path, model="cd" * 32)
    with pytest.raises(FileNotFoundError, match=r"holds no index \(it has no index\.json\)"):
        SearchIndex.open(tmp_path / "elsewhere")
    content = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(content | {"schema_version": 99}))
    with pytest.raises(ValueError, match="has schema version 99, expected 1"):
        SearchIndex.open(tmp_path)


def address(table: pa.Table) -> int:
    """Return where the ids of a table are in memory."""
    return int(table["item_id"].chunk(0).buffers()[2].address)


def test_an_index_shares_the_items_of_its_collection(tmp_path: Path) -> None:
    collection = write_collection(tmp_path / "collection", ["fox", "wood", "sea"])
    (tmp_path / "index").mkdir()
    index_of_collection(collection, None).without_items(["wood"]).write(tmp_path / "index")
    alone, shared = (
        SearchIndex.open(tmp_path / "index"),
        SearchIndex.open(tmp_path / "index", collection=collection),
    )
    assert address(shared.items) == address(collection.items) != address(alone.items)
    assert shared.items.column_names == alone.items.column_names
    assert [name in shared for name in ("fox", "wood", "sea")] == [True, False, True]
    assert shared.ids is collection.lookup
    for arguments in ({}, {"where": {"year": [0, 1]}}, {"exclude": ["fox"]}):
        query = np.array([[0.6, 0.8]])
        assert Search(shared).batch(query, 3, **arguments) == Search(alone).batch(
            query, 3, **arguments
        )
    other = write_collection(tmp_path / "other", ["fox", "wood", "sky"])
    assert address(SearchIndex.open(tmp_path / "index", collection=other).items) != address(
        other.items
    )


def test_an_empty_collection_finds_nothing(tmp_path: Path) -> None:
    SearchIndex(
        pa.table({"item_id": pa.array([], pa.string())}), np.zeros((0, 4), np.float16)
    ).write(tmp_path)
    assert [
        list(found) for found in Search(SearchIndex.open(tmp_path)).batch(np.ones((2, 4)), 3)
    ] == [[], []]


def test_index_rejects_what_it_cannot_search() -> None:
    index, queries = example()
    with pytest.raises(ValueError, match="no item 'sea' among its 50"):
        index.vector("sea")
    with pytest.raises(ValueError, match=r"vectors \(3, 2\), expected \(number, 8\)"):
        Search(index).batch(queries[:, :2], 1)
    for wrong in (np.zeros((1, 8)), np.full((1, 8), np.nan)):
        with pytest.raises(ValueError, match="zero or not finite"):
            Search(index).batch(wrong, 1)
    with pytest.raises(ValueError, match="k is 0 and offset 0"):
        Search(index).batch(queries, 0)
    with pytest.raises(ValueError, match="2 ids, 1 of them different, and 2 vectors"):
        SearchIndex.of(["a", "a"], np.eye(2))
    with pytest.raises(ValueError, match="one number per item"):
        SearchIndex.of(["a"], np.ones((1, 1)), np.zeros(2))


YEARS: list[int | None] = [1998, 2004, None, 2011, 2004]
CITIES = ["Oslo", "Rome", "Rome", None, "Oslo"]
ITEMS = pa.table(
    {
        "item_id": list("abcde"),
        "meta.year": YEARS,
        "meta.city": CITIES,
        "meta.tag": pa.array(CITIES).dictionary_encode(),
        "meta.day": pa.array(["2020-01-01", "2021-05-05", None, "2022-01-01", "2020-06-01"]).cast(
            pa.date32()
        ),
        "meta.public": [True, False, True, False, None],
    }
)
TIMES = [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.date32()]


@given(
    low=st.none() | st.integers(1990, 2015),
    high=st.none() | st.integers(1990, 2015),
    cities=st.lists(st.sampled_from(["Oslo", "Rome", "Bergen"])),
    public=st.none() | st.booleans(),
)
def test_conditions_are_those_of_a_loop(
    low: int | None, high: int | None, cities: list[str], public: bool | None
) -> None:
    where: dict[str, Any] = {"city": cities}
    limits = {key: value for key, value in (("min", low), ("max", high)) if value is not None}
    where |= ({"year": limits} if limits else {}) | (
        {"public": public} if public is not None else {}
    )
    expected = []
    for year, city, is_public in zip(YEARS, CITIES, ITEMS["meta.public"].to_pylist(), strict=True):
        in_range = (
            year is not None and (low is None or year >= low) and (high is None or year <= high)
        )
        expected.append(
            city in cities and (in_range or not limits) and (public is None or is_public == public)
        )
    assert matching_rows(ITEMS, where).tolist() == expected
    assert matching_rows(ITEMS, where | {"tag": cities}).tolist() == expected


def test_a_date_is_a_text_in_a_condition() -> None:
    assert matching_rows(ITEMS, {"day": {"min": "2020-06-01", "max": "2021-12-31"}}).tolist() == [
        False,
        True,
        False,
        False,
        True,
    ]


@given(moment=st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), type_=st.sampled_from(TIMES))
def test_a_year_a_month_and_a_day_mean_all_of_their_times(moment: datetime, type_: Any) -> None:
    moment = moment.replace(day=min(moment.day, 28))
    other = moment.replace(year=moment.year % 9000 + 1)
    items = pa.table({"meta.date": pa.array([moment, other, None]).cast(type_, safe=False)})
    for length in (4, 7, 10):
        day = f"{moment:%Y}".zfill(4) + f"{moment:-%m-%d}"
        period, others = day[:length], f"{other.year:04}" + day[4:length]
        assert matching_rows(items, {"date": period}).tolist() == [True, False, False]
        assert matching_rows(items, {"date": [period, others]}).tolist() == [True, True, False]
        for where in ({"max": period}, {"min": period}, {"min": period, "max": period}):
            earlier = ("min" not in where and other < moment) or (
                "max" not in where and other > moment
            )
            assert matching_rows(items, {"date": where}).tolist() == [True, earlier, False]


def test_a_range_of_whole_numbers_has_any_limit() -> None:
    assert matching_rows(ITEMS, {"year": {"min": 1998.5, "max": 2004.0}}).tolist() == [
        False,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"yeaar": 1}, "no metadata 'yeaar'; did you mean 'year'"),
        ({"item_id": "a"}, "no metadata 'item_id'"),
        ({"year": "1998"}, "does not fit the metadata 'year' of type int64"),
        ({"year": True}, "true and false fit only a column of booleans"),
        ({"year": None}, "null equals nothing"),
        ({"year": {"above": 3}}, "a range has the keys min and max, got above"),
        ({"year": {}}, "a range has the keys min and max"),
        ({"city": 3}, "the column has texts, such as"),
        ({"city": {"min": ["a"]}}, "does not fit the metadata 'city'"),
        ({"day": "yesterday"}, "does not fit the metadata 'day'"),
        ({"day": 2020}, 'a date is a text, such as "2020-05-31"'),
        ({"day": {"min": 2020}}, 'a year is "2020"'),
        ({"city": {"min": "10"}}, "'10' and 'Oslo' do not sort as their values"),
        ({"year": {"min": float("nan")}}, "nan is not a finite number"),
        ({"public": {"min": False}}, "true and false have no order"),
        ({"day": "0000"}, "a date is a text"),
        ({"year": [[1]]}, "does not fit the metadata 'year'"),
        ({"year": {"min": None}}, "does not fit the metadata 'year'"),
        ({"year": {"min": float("inf")}}, "inf is not a finite number"),
    ],
)
def test_conditions_that_do_not_fit_are_rejected(where: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        matching_rows(ITEMS, where)


def test_a_filter_applies_before_the_ranking() -> None:
    index, queries = example()
    index = SearchIndex(
        index.items.append_column("meta.year", pa.array(np.arange(50) % 10)), index.vectors
    )
    (hits, *_) = Search(index).batch(queries, 50, where={"year": {"min": 8}})
    assert sorted(hit.row for hit in hits) == [row for row in range(50) if row % 10 >= 8]
    assert list(hits) == [
        replace(hit) for hit in Search(index).batch(queries[:1], 50)[0] if hit.row % 10 >= 8
    ]


def test_rows_are_read_from_the_file_that_was_opened(tmp_path: Path) -> None:
    stored = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float16)
    stored.tofile(tmp_path / "vectors.f16")
    vectors = FileVectors(tmp_path / "vectors.f16", (20, 6))
    (tmp_path / "new").write_bytes(bytes(stored.nbytes))
    (tmp_path / "new").replace(tmp_path / "vectors.f16")  # as a deletion replaces it
    rows = np.array([19, 0, 7, 7])
    np.testing.assert_array_equal(vectors.take(rows, 0), stored[rows])
    np.testing.assert_array_equal(vectors[3:9], stored[3:9])
    np.testing.assert_array_equal(np.asarray(vectors), stored)
    assert vectors.take(rows[:0], 0).shape == (0, 6)
