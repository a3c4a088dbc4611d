"""Phrases of an English query: the parts whose place in an image is shown."""

import re
import unicodedata
from typing import NamedTuple

SEPARATORS = frozenset(
    [
        "about",
        "above",
        "across",
        "after",
        "against",
        "along",
        "among",
        "and",
        "around",
        "as",
        "at",
        "before",
        "behind",
        "below",
        "beneath",
        "beside",
        "between",
        "but",
        "by",
        "down",
        "during",
        "for",
        "from",
        "in",
        "inside",
        "into",
        "is",
        "are",
        "near",
        "next",
        "of",
        "off",
        "on",
        "onto",
        "or",
        "out",
        "outside",
        "over",
        "past",
        "through",
        "to",
        "toward",
        "towards",
        "under",
        "up",
        "upon",
        "while",
        "with",
        "within",
        "without",
        "that",
        "which",
        "who",
    ]
)
"""Words between two phrases."""
ARTICLES = frozenset(["a", "an", "the", "some", "its", "his", "her", "their", "this", "these"])
"""Words that a phrase does not start with."""
MAX_PHRASES = 6
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


class Phrase(NamedTuple):
    """Part of a query; ``start`` and ``end`` are its characters in the query."""

    text: str
    start: int
    end: int


def split_phrases(query: str) -> list[Phrase]:
    """Return at most ``MAX_PHRASES`` phrases: words between prepositions, conjunctions and
    punctuation, without articles.
    """
    groups: list[list[re.Match[str]]] = [[]]
    end = 0
    # Marks stay with their letter: they stand as letters in a text of the same length.
    letters = [sign if unicodedata.category(sign)[0] != "M" else "x" for sign in query]
    for word in _WORD.finditer("".join(letters)):
        lower = word.group().lower()
        if lower in SEPARATORS or query[end : word.start()].strip():
            groups.append([])
        end = word.end()
        if lower not in SEPARATORS and (groups[-1] or lower not in ARTICLES):
            groups[-1].append(word)
    spans = [(group[0].start(), group[-1].end()) for group in groups if group]
    if not spans:
        spans = [(0, len(query))]
    return [Phrase(query[start:end], start, end) for start, end in spans[:MAX_PHRASES]]
