"""Phrases of a query."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bifocal.onnx.pointing.phrases import ARTICLES, MAX_PHRASES, SEPARATORS, split_phrases


@given(
    st.text(max_size=20)
    | st.lists(st.sampled_from(["a", "red", "star", "on", "the", "sea", ",", "and"])).map(" ".join)
)
def test_phrases_are_parts_of_the_query_in_order_without_separators(query: str) -> None:
    phrases = split_phrases(query)
    assert 1 <= len(phrases) <= MAX_PHRASES
    assert all(query[phrase.start : phrase.end] == phrase.text for phrase in phrases)
    assert all(before.end <= after.start for before, after in pairwise(phrases))
    if phrases[0].text != query:
        words = [phrase.text.lower().split() for phrase in phrases]
        assert all(not SEPARATORS & set(group) and group[0] not in ARTICLES for group in words)


@given(st.sampled_from(["कुत्ता", "cafe\u0301", "كَلْب", "สุนัข", "dog"]))
def test_marks_stay_with_their_letter(word: str) -> None:
    assert [phrase.text for phrase in split_phrases(f"a {word} and the {word}")] == [word] * 2
