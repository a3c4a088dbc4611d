"""Words of a text: one rule for vocabularies, for the words that a model does not know, and for the
search by keywords."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uaa60-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana and Chinese characters: scripts without spaces between words."""
_MARKS = "".join(
    chr(code)
    for block in (range(0x0E00, 0x10A0), range(0x1780, 0x1800), range(0x3099, 0x309B))
    for code in block
    if unicodedata.category(chr(code))[0] == "M"
)
_LETTER = re.compile(f"(?![{_MARKS}])[{_UNSPACED}][{_MARKS}]*")
_RUN = re.compile(f"(?:{_LETTER.pattern})+")
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]{2}")
_EDGE = re.compile(r"['-](?:(?![^\s'-])|(?<![^\s'-]['-]))")
"""A hyphen or an apostrophe that is not between two letters."""
_PIECE = re.compile(r"\d+|\D+")
MAX_PIECES = 3
"""Runs of letters and of digits of a word that are parts of it: a hash has more, and no part."""
_SYLLABLES = re.compile("[\uac00-\ud7a3]{2,}")
_ASCII = {
    code: sign if sign.isalnum() or sign in "'-\n" else " "
    for code, sign in enumerate(map(chr, range(128)))
}


class _Signs(dict[int, str]):
    """Table of ``str.translate``: letters, marks and digits stay, an emoji is a word of its own."""

    def __missing__(self, code: int) -> str:
        sign, category = chr(code), unicodedata.category(chr(code))
        if category == "Cf" or 0xFE00 <= code < 0xFE10 or 0x1F3FB <= code < 0x1F400:
            kept = ""  # soft hyphens, joiners, and the selectors and skin tones of emoji
        elif category[0] in "LMN" or 0x1F1E6 <= code < 0x1F200:
            kept = sign
        else:
            is_emoji = category == "So" and code >= 0x2300 and not 0x2500 <= code < 0x25A0
            kept = f" {sign} " if is_emoji else " "
        self[code] = kept
        return kept


_signs = _Signs(_ASCII | {0x2019: "'", 0x2010: "-"})


def check_texts(texts: Sequence[object]) -> None:
    """Raise ``TypeError`` for the first value that is not a text, ``ValueError`` for one that is
    not UTF-8."""
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise TypeError(f"sentence {number} of {len(texts)} is {text!r}, expected a text")
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            raise ValueError(f"{text[:80]!r} is not UTF-8: write the sentence in UTF-8")


def tokenize(text: str, lower: bool = True) -> list[str]:
    """Return the words in ``text`` in order: runs of letters, marks and digits, and emoji.

    Unicode compatibility forms are unified (NFKC). Apostrophes and hyphens inside a word are kept,
    all other signs are removed. Scripts without spaces between words give pairs of letters.

    Args:
        lower: fold the case, so that "STRASSE" and "Straße" are one word.

    >>> tokenize("A man's T-shirt, 2 cafés & 犬が走る!")
    ['a', "man's", 't-shirt', '2', 'cafés', '犬が', 'が走', '走る']
    """
    return spaced(text, lower).split()


def spaced(text: str, lower: bool = True) -> str:
    """Return ``text`` with spaces between its words and no other signs; its lines stay lines."""
    if text.isascii():
        text = text.translate(_ASCII)
        return _EDGE.sub(" ", text.lower() if lower else text)
    text = unicodedata.normalize("NFKC", text)
    if lower:
        text = unicodedata.normalize("NFKC", text.casefold())
    text = _FLAG.sub(r" \g<0> ", text.translate(_signs))
    return _EDGE.sub(" ", _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text))


def _pairs(run: str) -> list[str]:
    letters = _LETTER.findall(run)
    return [a + b for a, b in pairwise(letters)] or [run]


@cache
def _is_accent(mark: str) -> bool:
    # Vowel signs of Indic scripts have the class 0, of Thai and Lao 103 to 122: they tell words
    # apart.
    kind = unicodedata.combining(mark)
    return 10 <= kind <= 35 or kind >= 200


def parts(word: str) -> set[str]:
    """Return other words by which a word is found: without accents, its pieces between hyphens and
    between letters and digits, letters of scripts without spaces, and pairs of Korean syllables.

    >>> sorted(parts("crème-brûlée")), sorted(parts("img1234")), sorted(parts("dog"))
    (['brulee', 'brûlée', 'creme', 'crème', 'creme-brulee', 'crèmebrûlée'], ['1234', 'img'], [])
    """
    if word.isascii() and word.isalpha():
        return set()
    pieces = re.split("['-]", word)
    found = {*pieces, "".join(pieces), *_LETTER.findall(word)}
    for piece in pieces:
        if len(runs := _PIECE.findall(piece)) <= MAX_PIECES:
            found.update(runs)
    for syllables in _SYLLABLES.findall(word):
        found.update(a + b for a, b in pairwise(syllables))
    for known in (word, *pieces):
        plain = "".join(
            sign for sign in unicodedata.normalize("NFD", known) if not _is_accent(sign)
        )
        found.add(unicodedata.normalize("NFC", plain))
    return found - {word, ""}
