"""Tokens of captions."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.text import tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A dog , running .", ["a", "dog", "running"]),
        ("the girl’s T-shirt -- 'red'", ["the", "girl's", "t-shirt", "red"]),
        ("e\u0301te\u0301 \ufb01ne", ["été", "fine"]),
        ("एक कुत्ता दौड़ता है", ["एक", "कुत्ता", "दौड़ता", "है"]),
        ("собака бежит", ["собака", "бежит"]),
        ("🐕 !?", []),
        ("", []),
        ("under_score a/b", ["under", "score", "a", "b"]),
    ],
)
def test_text_is_split_into_tokens(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == [unicodedata.normalize("NFKC", token) for token in tokens]


@given(st.text())
def test_tokens_are_stable_and_contain_no_space(text: str) -> None:
    tokens = tokenize(text)
    assert tokenize(" ".join(tokens)) == tokens
    assert all(token and not any(sign.isspace() for sign in token) for token in tokens)


def test_case_is_kept_on_request() -> None:
    assert tokenize("The Dog", lower=False) == ["The", "Dog"]
