"""Position of a phrase in its sentence."""

from collections.abc import Sequence


def find_phrase(sentence: Sequence[str], phrase: Sequence[str], number: int = 0) -> slice | None:
    """Return the position of ``phrase`` in ``sentence``, both as tokens; None if it does not occur.

    Args:
        number: which occurrence, from 0; the last one if there are fewer.

    Example:
        >>> find_phrase("a man and a man".split(), ["a", "man"], number=1)
        slice(3, 5, None)
    """
    size = len(phrase)
    starts = [
        start for start in range(len(sentence) - size + 1) if list(sentence[start : start + size]) == list(phrase)
    ]
    if not size or not starts:
        return None
    first = starts[min(number, len(starts) - 1)]
    return slice(first, first + size)
