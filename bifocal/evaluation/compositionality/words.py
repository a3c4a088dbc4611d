"""Words that the edits of captions exchange or replace."""

from collections.abc import Mapping
from types import MappingProxyType

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
"""Shapes of the drawn scenes, people, clothes, and the categories of COCO that have a name of one word."""

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
"""Spatial words and their opposites. "lower down than" is the opposite of "higher up than" in the drawn scenes."""
