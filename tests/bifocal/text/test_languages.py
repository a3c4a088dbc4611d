"""Languages of the captions of a collection."""

import pytest

from bifocal.text.languages import main_languages

ENGLISH, GERMAN = "a dog runs through the high grass of a garden", "ein Hund läuft durch das hohe Gras des Gartens"


def test_languages_are_ordered_by_their_share() -> None:
    captions = [[GERMAN, "a second caption is not read"]] * 20 + [[]] * 7 + [[ENGLISH]] * 50 + [[ENGLISH]] * 10
    assert main_languages(captions) == ["en", "de"]


@pytest.mark.parametrize("captions", [[], [[], []], [["4711"], ["!"]]])
def test_captions_without_a_language_have_none(captions: list[list[str]]) -> None:
    assert main_languages(captions) == []
