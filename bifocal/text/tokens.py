"""From a caption to its tokens."""

import re
import unicodedata

PADDING = "<pad>"
UNKNOWN = "<unk>"
MAX_TOKENS = 100
"""Tokens of a caption that are read; what follows is cut off, and counted."""

_WORD = re.compile(r"[^\s'-]+(?:['-][^\s'-]+)*")
_ASCII = {code: chr(code) if chr(code).isalnum() or chr(code) in "'-" else " " for code in range(128)} | {0x2019: "'"}


def tokenize(text: str, lower: bool = True) -> list[str]:
    """The words of ``text``, in order: runs of letters, marks and digits of any script.

    Compatible forms are unified (Unicode NFKC), apostrophes and hyphens are kept inside a word, all other signs are
    dropped. A script that puts no space between words gives one token for each run.

    >>> tokenize("A man's T-shirt, 2 cafés & 犬が走る!")
    ['a', "man's", 't-shirt', '2', 'cafés', '犬が走る']
    """
    text = unicodedata.normalize("NFKC", text).translate(_ASCII)
    if lower:
        text = text.lower()
    if not text.isascii():
        text = "".join(sign if sign in "'-" or unicodedata.category(sign)[0] in "LMN" else " " for sign in text)
    return _WORD.findall(text)
