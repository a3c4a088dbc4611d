"""Search by words, and the fusion of rankings."""

import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.onnx.text.captions import tokenize
from bifocal.search import keywords
from bifocal.search.keywords import Keywords, fuse, has_texts, terms
from tests.bifocal.search.captioned import ITEMS

CAPTIONS = pa.field("captions", pa.list_(pa.string()))


def test_keywords_rank_by_words_of_captions_and_texts() -> None:
    searched = Keywords.of(ITEMS)
    assert searched.search("HARBOR", 5).tolist() == [3]
    assert searched.search("a dog", 5).tolist()[0] in (0, 1)
    assert set(searched.search("dog oslo", 5).tolist()) == {0, 1, 3}
    assert searched.search("dog oslo", 1).tolist() == [1]  # the only one with both words
    assert searched.search("dog", 5, np.arange(5) == 0).tolist() == [0]
    assert searched.search("zebra", 5).tolist() == []
    assert Keywords.of(ITEMS.select(["item_id"])).search("dog", 5).tolist() == []


TEXTS = [
    "a Dog a dog",
    "snow, dog_1 & Élan",
    "a a a snow",
    "",
    "été élan DOG",
    "a 2024 snow dog dog",
] * 3


def bm25(texts: list[str], query: str, row: int) -> float:
    """Return the score of an item, by the equation of the class with loops."""
    words = [list(terms(tokenize(text))) for text in texts]
    mean = sum(map(len, words)) / len(words)
    total = 0.0
    for word in terms(tokenize(query)):
        items, often = sum(word in others for others in words), words[row].count(word)
        idf = math.log(1 + (len(words) - items + 0.5) / (items + 0.5))
        total += idf * often / (often + 1.5 * (1 - 0.75 + 0.75 * len(words[row]) / mean))
    return total


@pytest.mark.parametrize("query", ["DOG", "a snow dog", "élan 2024", "a a dog_1", "nothing"])
def test_keywords_sort_by_the_equation(
    query: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(keywords, "BATCH", 4)
    monkeypatch.setattr(keywords, "SAMPLED", 1)
    scores = [bm25(TEXTS, query, row) for row in range(len(TEXTS))]
    expected = sorted(
        (row for row in range(len(TEXTS)) if scores[row]),
        key=lambda row: (-round(scores[row], 6), row),
    )
    searched = Keywords.of(
        pa.table(
            {"item_id": list(map(str, range(len(TEXTS)))), "captions": [[text] for text in TEXTS]}
        )
    )
    assert searched.search(query, 100).tolist() == expected
    searched.write(tmp_path / "keywords.arrow")
    searched = Keywords.open(tmp_path / "keywords.arrow", len(TEXTS))
    assert searched.search(query, 4).tolist() == expected[:4]
    allowed = np.arange(len(TEXTS)) % 2 == 0
    assert (
        searched.search(query, 4, allowed).tolist() == [row for row in expected if allowed[row]][:4]
    )


VALUES = {
    "ean": pa.array([4006381333907, None, 12]),
    "size": pa.array([2.0, 1.5, math.nan]),
    "day": pa.array([date(2015, 3, 1), date(2016, 3, 1), None]),
    "moment": pa.array(
        [datetime(2024, 3, 2, 23, 30), None, None], pa.timestamp("us", "Europe/Rome")
    ),
    "kind": pa.array(["Straße", "straight", None]).dictionary_encode(),
    "price": pa.array([Decimal("9.95"), None, None]),
    "flag": pa.array([True, False, None]),
    "none": pa.nulls(3, pa.string()),
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("4006381333907", [0]),
        ("2", [0]),
        ("1.5", [1]),
        ("nan", []),
        ("2015", [0]),
        ("2016-03-01", [1, 0]),
        ("2024-03-03", [0, 1]),  # in the zone of the column; 03 is a part of another day
        ("STRASSE", [0]),
        ("9.95", [0]),
        ("true", []),
    ],
)
def test_numbers_and_days_of_tables_are_words(query: str, expected: list[int]) -> None:
    table = pa.table({"item_id": list("abc")} | {f"meta.{k}": v for k, v in VALUES.items()})
    assert Keywords.of(table).search(query, 9).tolist() == expected
    assert has_texts(table)
    assert not has_texts(table.select(["item_id", "meta.flag", "meta.none"]))


@given(st.lists(st.lists(st.text(max_size=12), max_size=3), min_size=1, max_size=9), st.data())
def test_an_item_is_found_by_each_of_its_words(
    captions: list[list[str]], data: st.DataObject
) -> None:
    table = pa.table({"item_id": list(map(str, range(len(captions)))), "captions": captions})
    searched = Keywords.of(table.cast(pa.schema([("item_id", pa.string()), CAPTIONS])))
    searched.check()
    row = data.draw(st.sampled_from(range(len(captions))))
    for word in terms(tokenize(" ".join(captions[row]))):
        assert row in searched.search(word.upper() if word.isascii() else word, 99)
    # A word that is repeated is read once, and counts as often.
    assert len(searched.postings("dog " * 99)) <= 1


@pytest.mark.parametrize("column", ["items", "weights", "word"])
@pytest.mark.parametrize("damage", ["null", "other", "shorter"])
def test_damaged_keywords_are_one_error(column: str, damage: str) -> None:
    table = Keywords.of(ITEMS)._table
    values = table[column].combine_chunks()
    if damage == "null":
        values = pa.nulls(len(values), values.type)
    elif column == "word":
        values = values[::-1] if damage == "other" else pa.array(["a"] * len(values))
    else:
        offsets, numbers = values.offsets, values.values
        bad = -1 if column == "items" else math.inf
        numbers = pa.array([bad] * len(numbers), numbers.type) if damage == "other" else numbers
        offsets = pa.array([0] * len(offsets), pa.int64()) if damage == "shorter" else offsets
        values = pa.LargeListArray.from_arrays(offsets, numbers)
    table = table.set_column(table.column_names.index(column), column, values)
    with pytest.raises(ValueError, match="build it again"):
        Keywords(table, len(ITEMS)).check()


def test_fusion_is_the_sum_of_reciprocal_ranks() -> None:
    first, second = [5, 2, 9], [9, 5, 1]
    sums = {5: 1 / 61 + 1 / 62, 2: 1 / 62, 9: 1 / 63 + 1 / 61, 1: 1 / 63}
    fused = fuse([first, second])
    assert list(fused) == sorted(sums, key=lambda row: -sums[row])
    assert fused == pytest.approx(sums)
    assert fuse([]) == {}


def test_a_query_of_too_many_different_words_is_refused() -> None:
    searched = Keywords.of(ITEMS)
    with pytest.raises(ValueError, match="has 19999 different words and parts of words"):
        searched.search("".join(chr(0x4E00 + number) for number in range(10_000)), 5)
    assert searched.search("dog " * 9999, 5).tolist() == searched.search("dog", 5).tolist()
