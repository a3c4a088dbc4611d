"""Tokens of captions."""

import re
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.onnx.text.captions import parts
from bifocal.text import Vocabulary, tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A dog , running .", ["a", "dog", "running"]),
        ("the girl’s T-shirt -- 'red'", ["the", "girl's", "t-shirt", "red"]),
        ("e\u0301te\u0301 \ufb01ne", ["été", "fine"]),
        ("एक कुत्ता दौड़ता है", ["एक", "कुत्ता", "दौड़ता", "है"]),
        ("собака бежит", ["собака", "бежит"]),
        ("🐕❤️👍🏽!?🇩🇪🇫🇷", ["🐕", "❤", "👍", "🇩🇪", "🇫🇷"]),
        ("Straße, STRASSE, ΛΌΓΟΣ λόγος", ["strasse", "strasse", "λόγοσ", "λόγοσ"]),
        ("一只狗, สุนัข", ["一只", "只狗", "สุนั", "นัข"]),
        ("狗 7狗b", ["狗", "7", "狗", "b"]),
        ("co\u00adop \u200bt\u2010shirt", ["coop", "t-shirt"]),
        ("rock-'n'-roll -a- b--c 'd", ["rock", "n", "roll", "a", "b", "c", "d"]),
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


@given(st.text(), st.text())
def test_equal_texts_have_equal_words(text: str, other: str) -> None:
    tokens = tokenize(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert tokenize(unicodedata.normalize(form, text)) == tokens
    assert tokenize(f"{text}\n{other}") == tokens + tokenize(other)
    assert tokenize(unicodedata.normalize("NFKC", text).casefold()) == tokens


@given(st.text(st.characters(codec="ascii")))
def test_ascii_words_are_runs_of_letters_and_digits(text: str) -> None:
    words = "".join(sign if sign.isalnum() or sign in "'-" else " " for sign in text.lower())
    joined = re.findall(r"[^\s'-]+(?:['-][^\s'-]+)*", words)
    assert tokenize(text) == joined


@given(st.text())
def test_parts_are_other_words_and_letters_without_a_mark_keep_theirs(text: str) -> None:
    for word in tokenize(text):
        found = parts(word)
        assert not found & {word, ""}
        assert not any(unicodedata.category(part[0])[0] == "M" for part in found) or (
            unicodedata.category(word[0])[0] == "M"
        )


MARKS = [sign for sign in map(chr, range(0x300, 0x20000)) if unicodedata.combining(sign)]


@given(st.text("aé", min_size=1, max_size=3), st.lists(st.sampled_from(MARKS), max_size=40))
def test_the_first_marks_of_a_letter_stay(start: str, marks: list[str]) -> None:
    assert tokenize(start + "".join(marks)) == tokenize(start + "".join(marks[:30]))


def test_many_marks_take_no_longer_than_letters() -> None:
    begin = time.process_time()
    assert len(tokenize("a" + "\N{COMBINING ACUTE ACCENT}\N{COMBINING DOT BELOW}" * 10**5)) == 1
    assert time.process_time() - begin < 2  # composed whole, they take minutes


def test_case_is_kept_on_request() -> None:
    assert tokenize("The Dog", lower=False) == ["The", "Dog"]


def test_vocabulary_is_loaded_as_saved(tmp_path: Path) -> None:
    vocabulary = Vocabulary(["a", "犬"], buckets=3)
    vocabulary.save(tmp_path / "vocabulary.json")
    loaded = Vocabulary.load(tmp_path / "vocabulary.json")
    tokens = ["犬", "cat", "a", "<unk>"]
    assert len(loaded) == len(vocabulary) == 7
    assert loaded.encode(tokens) == vocabulary.encode(tokens)


def test_a_vocabulary_in_lower_case_knows_folded_words() -> None:
    vocabulary = Vocabulary(["straße", "λόγος"])
    assert vocabulary.encode(tokenize("STRASSE ΛΌΓΟΣ")) == [2, 3]


def test_unknown_words_are_unk_or_in_buckets() -> None:
    assert Vocabulary(["a"]).encode(["b", "a", "c"]) == [1, 2, 1]
    words = [str(number) for number in range(100)]
    ids = Vocabulary(["a"], buckets=4).encode(words)
    assert set(ids) == {3, 4, 5, 6}


def test_repeated_word_is_rejected() -> None:
    with pytest.raises(ValueError, match="word 'a' is repeated"):
        Vocabulary(["a", "b", "a"])


def test_file_that_is_not_a_vocabulary_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text('{"words": ["a"], "buckets": 0}')
    with pytest.raises(ValueError, match="is not a vocabulary"):
        Vocabulary.load(tmp_path / "words.json")
