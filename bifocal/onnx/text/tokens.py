"""Tokens of a caption."""

import re
import unicodedata

PADDING = "<pad>"
UNKNOWN = "<unk>"
MAX_TOKENS = 100
"""Longer captions are truncated to this number of tokens, and counted."""

_WORD = re.compile(r"[^\s'-]+(?:['-][^\s'-]+)*")
_ASCII = {code: chr(code) if chr(code).isalnum() or chr(code) in "'-" else " " for code in range(128)} | {0x2019: "'"}


def tokenize(text: str, lower: bool = True) -> list[str]:
    """Return the words in ``text`` in order: runs of letters, marks and digits in any script.

    Unicode compatibility forms are unified (NFKC). Apostrophes and hyphens inside a word are kept, all other signs are
    removed. Scripts without spaces between words give one token per run.

    Args:
        lower: convert to lower case.

    >>> tokenize("A man's T-shirt, 2 cafés & 犬が走る!")
    ['a', "man's", 't-shirt', '2', 'cafés', '犬が走る']
    """
    text = unicodedata.normalize("NFKC", text).translate(_ASCII)
    if lower:
        text = text.lower()
    if not text.isascii():
        text = "".join(sign if sign in "'-" or unicodedata.category(sign)[0] in "LMN" else " " for sign in text)
    return _WORD.findall(text)
