"""Bounds of JSON bodies."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from bifocal.serving.service.routes.json_bodies import MAX_DEPTH, MAX_ELEMENTS, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\\\[]{},:\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


@given(value=VALUES)
def test_small_bodies_are_parsed(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


def test_elements_are_limited_and_characters_of_strings_are_not() -> None:
    assert parse_json(json.dumps("," * 10**6 + '"' * 10**6).encode()).count(",") == 10**6
    assert len(parse_json(json.dumps([0] * (MAX_ELEMENTS - 1)).encode())) == MAX_ELEMENTS - 1
    for body in (json.dumps([0] * (MAX_ELEMENTS + 1)), json.dumps(["\\"] * (2 * MAX_ELEMENTS + 1)), "[" * MAX_ELEMENTS):
        with pytest.raises(HTTPException) as refusal:
            parse_json(body.encode())
        assert refusal.value.status_code == 400


def test_levels_are_limited() -> None:
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(HTTPException, match="levels"):
        parse_json(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize("piece", [b'"', b'\\"', b"\\", b'"\\\\"', b'"\\', b"a", b"[", b"{", b":"])
def test_the_time_is_linear(piece: bytes) -> None:
    start = time.perf_counter()
    with pytest.raises((HTTPException, ValueError)):
        parse_json(b'"' + piece * (4_000_000 // len(piece)))
    assert time.perf_counter() - start < 5
