"""Items and drawn queries that cost much: long filters, many words, groups."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from bifocal.search.query import EncodedQuery

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
