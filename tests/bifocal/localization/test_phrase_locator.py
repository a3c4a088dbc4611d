"""Position of a phrase in its sentence."""

from bifocal.localization import find_phrase


def test_find_phrase_returns_position_in_sentence() -> None:
    sentence = ["a", "man", "and", "a", "man", "with", "a", "hat"]
    assert find_phrase(sentence, ["a", "man"]) == slice(0, 2)
    assert find_phrase(sentence, ["a", "man"], 1) == slice(3, 5)
    assert find_phrase(sentence, ["a", "man"], 7) == slice(3, 5)
    assert find_phrase(sentence, ["a", "dog"]) is None
    assert find_phrase(sentence, []) is None
