"""Types of the user's columns: read once, kept by an update, and never guessed from some of the
values."""

import json
from contextlib import suppress
from datetime import date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bifocal.datasets.base import META
from bifocal.datasets.tables import one_type, typed_texts, with_type
from bifocal.durable import plain
from bifocal.search.collection.sources import files_source
from bifocal.search.filters import matching_rows
from tests.bifocal.datasets.corpora.image_folder.writers import picture

DAY, TIME = date(2024, 5, 31), datetime(2024, 5, 31, 18, 0)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["5", "9.5", " 10", "", "1e-05"], [5.0, 9.5, 10.0, None, 1e-05]),
        (["5", "-3", "0"], [5, -3, 0]),
        (["007", "12"], ["007", "12"]),  # article numbers
        (["+49", "12"], ["+49", "12"]),
        (["5", "five"], ["5", "five"]),
        (["1,5", "2"], ["1,5", "2"]),
        (["nan", "1"], ["nan", "1"]),
        (["12E5", "13E5"], ["12E5", "13E5"]),
        (["9" * 20], ["9" * 20]),
        (["2024-05-31", ""], [DAY, None]),
        (["2024-05-31", "2024-05-31 18:00"], [datetime(2024, 5, 31), TIME]),
        (["2024-05-31T20:00:00+02:00", "2024-05-31T18:00Z"], [TIME.replace(hour=20), TIME]),
        (["2024-05-31", "31.05.2024"], ["2024-05-31", "31.05.2024"]),
        (["2024-02-30"], ["2024-02-30"]),
        (["", " "], [None, None]),
        (["1.1", "1.10", "2"], ["1.1", "1.10", "2"]),  # versions
        (["9999-12-31T23:59:59-05:00"], [datetime(9999, 12, 31, 23, 59, 59)]),
    ],
)
def test_a_text_column_is_numbers_or_dates_if_all_values_are(
    texts: list[str], expected: list[Any]
) -> None:
    found = typed_texts(texts)
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


@given(st.lists(st.integers(-(10**17), 10**17) | st.none(), min_size=1))
def test_whole_numbers_come_back(values: list[int | None]) -> None:
    texts = ["" if value is None else str(value) for value in values]
    assert typed_texts(texts) == values


@given(st.lists(st.text()))
def test_other_texts_come_back(values: list[str]) -> None:
    assert typed_texts([*values, "x"]) == [*values, "x"]


@pytest.mark.parametrize(
    ("former", "values", "kept", "misfits"),
    [
        ([1, 2], ["7", "x", None], [7, None, None], ["x"]),
        ([1, 2], [7, 9.5], [7.0, 9.5], []),
        ([1.5], [7], [7.0], []),
        ([1], [DAY], [None], [DAY]),
        (["a"], [7, None], ["7", None], []),
        ([DAY], [TIME], [TIME], []),
        ([TIME], [DAY], [datetime(2024, 5, 31)], []),
        ([DAY], ["2024-05-31", "spring"], [DAY, None], ["spring"]),
        ([True], ["true"], [None], ["true"]),
        ([1], [None], [None], []),
        ([DAY], [TIME, DAY, "soon"], [TIME, datetime(2024, 5, 31), None], ["soon"]),
        ([1.5], [2**60, 3], [None, 3.0], [2**60]),
    ],
)
def test_a_column_keeps_its_first_type(
    former: list[Any], values: list[Any], kept: list[Any], misfits: list[Any]
) -> None:
    column, found = with_type(pa.chunked_array([one_type(values)]), one_type(former).type)
    assert (column.to_pylist(), found) == (kept, misfits)


ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.dates(), st.datetimes(),
    st.datetimes(timezones=st.timezones()), st.times(), st.timedeltas(), st.decimals(allow_nan=False),
    st.binary(max_size=4), st.lists(st.integers()), st.dictionaries(st.text(), st.booleans()),
    st.sampled_from(["", "2024-05-31", "2024-02-30", "7", "1.50", "0001-01-01T00:00:00+01:00"]),
)  # fmt: skip


@given(first=st.lists(ANY), second=st.lists(ANY), third=st.lists(ANY))
@example([], [date(2000, 1, 1)], [datetime(2000, 1, 1)])
@example([], [False], [datetime(1, 1, 1, tzinfo=ZoneInfo("Africa/Addis_Ababa"))])
def test_columns_of_any_values_are_read_updated_and_read_again(
    first: list[Any], second: list[Any], third: list[Any]
) -> None:
    column = pa.chunked_array([one_type(first)])
    for values in (second, third):
        if pa.types.is_null(column.type):
            column = pa.chunked_array([one_type(values)])
            continue
        given_ = pa.chunked_array([one_type(values)])
        found, misfits = with_type(given_, column.type)
        kept = found.to_pylist()
        lost = [
            old
            for old, new in zip(given_.to_pylist(), kept, strict=True)
            if old not in (None, "") and new is None
        ]
        assert len(kept) == len(values)
        items = pa.table({META + "v": found})
        pq.write_table(items, path := BytesIO())
        assert repr(pq.read_table(path).column(0).to_pylist()) == repr(kept)  # as NaN != NaN
        for value in kept:
            with suppress(ValueError):  # one sentence, never another error
                matching_rows(items, {"v": plain(value, safe=True)})
                matching_rows(items, {"v": {"min": plain(value, safe=True)}})
        assert len(lost) == len(misfits)
        column = found


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
RESERVED = st.sampled_from(
    [
        "item_id",
        "image_id",
        "split",
        "embedding",
        "date",
        "folder",
        "__index__",
        "shard",
        "row",
        "deleted",
        "captions",
        "meta.x",
        "sha256",
        "width",
        "id",
        "score",
    ]
)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    (folder / "a.jpg").write_bytes(picture(0))
    return folder


@given(row=st.dictionaries(RESERVED | NAMES, VALUES, max_size=6))
def test_columns_of_any_name_and_type_come_back(photos: Path, row: dict[str, Any]) -> None:
    (photos / "captions.jsonl").write_text(
        json.dumps(row | {"image": "a.jpg", "caption": "a star"})
    )
    source = files_source(photos, photos)
    found = {} if source.metadata is None else source.metadata.to_pylist()[0]
    assert found.pop("item_id", "a.jpg") == "a.jpg"
    assert found == {
        f"meta.{name}": value for name, value in row.items() if name not in ("image", "caption")
    }
