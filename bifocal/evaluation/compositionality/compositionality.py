"""Compositionality: does an image fit its caption better than an edit with the same, or almost the
same, words?"""

from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pandas as pd

from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.compositionality.choices import choice_result
from bifocal.text import tokenize

PROPERTIES: tuple[frozenset[str], ...] = tuple(
    frozenset(words.split())
    for words in (
        "red orange yellow green blue purple violet pink white black brown gray tan golden silver",
        "small little tiny medium-sized large big huge",
        "tall short long",
        "plain smooth striped dotted spotted checkered",
        "young old elderly",
        "wet dry",
    )
)
"""Adjectives by property; two of one property may be exchanged."""

_NOUNS = """
    circle disc square box triangle star ring hoop cross hexagon heart diamond rhombus crescent moon man woman boy
    girl child kid baby person people lady guy men women children toddler player dog cat horse sheep cow elephant
    bear zebra giraffe bird bicycle bike car motorcycle airplane bus train truck boat bench backpack umbrella
    handbag tie suitcase frisbee ball kite bat skateboard surfboard snowboard racket bottle glass cup fork knife
    spoon bowl banana apple sandwich broccoli carrot pizza donut cake chair couch plant bed table toilet tv laptop
    mouse remote keyboard phone oven toaster sink refrigerator book clock vase scissors shirt hat jacket dress pants
"""
NOUNS = frozenset({*_NOUNS.split(), "plus sign"})
"""Shapes of the drawn scenes, people, clothes, and the categories of COCO that have a name of one
word."""

NUMBERS = ("one", "two", "three", "four", "five", "six")

OPPOSITES: Mapping[str, str] = MappingProxyType(
    {
        one: other
        for pair in (
            "left right",
            "above below",
            "over under",
            "top bottom",
            "upper lower",
            "inside outside",
            "higher lower",
            "up down",
        )
        for one, other in (pair.split(), pair.split()[::-1])
    }
    | {"lower": "higher", "upper": "lower"}
)
"""Spatial words and their opposites. "lower down than" is the opposite of "higher up than" in the
drawn scenes."""
LABELS: Mapping[str, str] = {
    "attributes": "attributes exchanged",
    "nouns": "nouns exchanged",
    "relation": "opposite relation",
    "count": "another count",
    "negation": "negation",
    "order": "words shuffled",
}
FRONT = ["in", "front", "of"]
LISTING = {"and", "or", "a", "an", "the"}
"""Words between two words that may change places without a change of meaning."""
MAX_SHUFFLES = 10
Words = list[str]


class Compositionality:
    """Accuracy of choosing between a caption and its minimal edit, given the image, by kind of
    edit.

    As in ARO (Yuksekgonul et al., "When and why vision-language models behave like bags-of-words",
    ICLR 2023) and Winoground (Thrush et al., CVPR 2022). Rules make the edits. Equal scores count
    half, so a bag-of-words model has exactly 50 % where an edit keeps the words.
    """

    title = "Compositionality"

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped if no rule applies to its captions."""
        choices = edited_captions(subject.split.captions)
        if choices.empty:
            return Result(self.title, skipped="No rule of the edits applies to the captions.")
        note = (
            "Percentage of captions that fit their image better than the edit of the caption "
            "does; in brackets, the number of captions with this edit. A model of bags of "
            "words has 50 % where an edit keeps all words: exchanged attributes and nouns, and "
            "shuffled words."
        )
        return choice_result(self.title, "compositionality", choices, LABELS, subject, note)


def edited_captions(captions: pd.DataFrame) -> pd.DataFrame:
    """Return image_id, edit, caption and edited of each caption and each rule that applies to
    it."""
    rows = [
        (image_id, name, caption, edited)
        for image_id, text in zip(captions["image_id"], captions["text"], strict=True)
        for caption, changed in [edits(text)]
        for name, edited in changed.items()
    ]
    return pd.DataFrame(rows, columns=["image_id", "edit", "caption", "edited"])


def edits(caption: str) -> tuple[str, dict[str, str]]:
    """Return the words of a caption as they are compared, and its edits by name; rules that do not
    apply give none.

    - attributes: two adjectives of one property (color, size, pattern, age ...) are exchanged;
    - nouns: two different nouns of a list of shapes, people and objects are exchanged;
    - relation: the first spatial word is replaced by its opposite;
    - count: two different numbers are exchanged, or one is replaced by the next;
    - negation: the present and the absent object are exchanged ("a star but no ring"), or "with"
      and "without";
    - order: all words are shuffled, in an order that the caption determines.

    Exchanges keep all words: an exchange that would turn "a" into "an" is left out. The rules read
    neither grammar nor the image: an edited real caption may be odd, and rarely true.

    >>> edits("A red star above a blue ring.")[1]["attributes"]
    'a blue star above a red ring'
    """
    words = _split(caption)
    changed = {name: rule(words) for name, rule in RULES.items()}
    return " ".join(words), {
        name: " ".join(result) for name, result in changed.items() if result is not None
    }


def exchange_attributes(words: Words) -> Words | None:
    """Exchange two different adjectives of one property."""
    found = (_exchange_first(words, adjectives.__contains__) for adjectives in PROPERTIES)
    return next((exchanged for exchanged in found if exchanged is not None), None)


def exchange_nouns(words: Words) -> Words | None:
    """Exchange two different nouns."""
    return _exchange_first(words, _is_noun)


def reverse_relation(words: Words) -> Words | None:
    """Replace the first spatial word by its opposite."""
    for index, word in enumerate(words):
        if words[index : index + len(FRONT)] == FRONT:
            return [*words[:index], "behind", *words[index + len(FRONT) :]]
        if word == "behind":
            return [*words[:index], *FRONT, *words[index + 1 :]]
        if word in OPPOSITES:
            return [*words[:index], OPPOSITES[word], *words[index + 1 :]]
    return None


def change_count(words: Words) -> Words | None:
    """Exchange two different numbers, or replace the first one above one by the next."""
    exchanged = _exchange_first(words, NUMBERS.__contains__)
    if exchanged is not None:
        return exchanged
    for index, word in enumerate(words):
        if word in NUMBERS[1:-1]:
            return [*words[:index], NUMBERS[NUMBERS.index(word) + 1], *words[index + 1 :]]
    return None


def negate(words: Words) -> Words | None:
    """Exchange the present and the absent object of "a star but no ring", or "with" and
    "without"."""
    for index, word in enumerate(words):
        if word in ("without", "with"):
            return [*words[:index], "with" if word == "without" else "without", *words[index + 1 :]]
        if word == "no" and index > 1 and words[index - 1] in ("but", "and"):
            start = next(
                (place for place in range(index - 2, -1, -1) if words[place] in ("a", "an")), None
            )
            end = next(
                (place for place in range(index + 1, len(words)) if _is_noun(words[place])), None
            )
            if start is None or end is None:
                return None
            present, absent = words[start + 1 : index - 1], words[index + 1 : end + 1]
            return _with_articles(
                [
                    *words[: start + 1],
                    *absent,
                    *words[index - 1 : index + 1],
                    *present,
                    *words[end + 1 :],
                ],
                {start + 1},
            )
    return None


def shuffle(words: Words) -> Words | None:
    """Shuffle the words, in the same way for the same caption."""
    random = np.random.default_rng(list(sha256(" ".join(words).encode()).digest()))
    for _ in range(MAX_SHUFFLES):
        shuffled = [words[index] for index in random.permutation(len(words))]
        if shuffled != words:
            return shuffled
    return None


RULES: Mapping[str, Callable[[Words], Words | None]] = MappingProxyType(
    {
        "attributes": exchange_attributes,
        "nouns": exchange_nouns,
        "relation": reverse_relation,
        "count": change_count,
        "negation": negate,
        "order": shuffle,
    }
)
"""The edits by name."""


def _split(caption: str) -> Words:
    words = tokenize(caption)
    # One noun of two words.
    pairs = [
        index for index in range(len(words) - 1) if words[index : index + 2] == ["plus", "sign"]
    ]
    return [
        "plus sign" if index in pairs else word
        for index, word in enumerate(words)
        if index - 1 not in pairs
    ]


def _is_noun(word: str) -> bool:
    return word in NOUNS or (word.endswith("s") and (word[:-1] in NOUNS or word[:-2] in NOUNS))


def _exchange_first(words: Words, belongs: Callable[[str], bool]) -> Words | None:
    """Exchange the first two different words that ``belongs`` accepts, unless they are listed:
    "black and white"."""
    found = [index for index, word in enumerate(words) if belongs(word)]
    for one, other in pairwise(found):
        if words[one] != words[other] and not set(words[one + 1 : other]) <= LISTING:
            exchanged = _exchanged(words, one, other)
            if sorted(exchanged) == sorted(words):
                return exchanged
    return None


def _exchanged(words: Words, one: int, other: int) -> Words:
    changed = list(words)
    changed[one], changed[other] = changed[other], changed[one]
    return _with_articles(changed, {one, other})


def _with_articles(words: Words, changed: Collection[int]) -> Words:
    """Correct "a" and "an" before the words that were changed."""
    corrected = list(words)
    for index in changed:
        if index and words[index - 1] in ("a", "an"):
            corrected[index - 1] = "an" if words[index][0] in "aeiou" else "a"
    return corrected
