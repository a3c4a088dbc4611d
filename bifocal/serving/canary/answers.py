"""Answers whose client may say which result it chose."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection

MAX_ANSWERS = 20_000


class Answers:
    """The last ``MAX_ANSWERS`` answers with their results."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[frozenset[str], Callable[[], None] | None]] = OrderedDict()

    def add(self, items: Collection[str], count: Callable[[], None]) -> str:
        """Return a new answer's id; ``count`` is called when one of its items is first chosen."""
        name = secrets.token_urlsafe(12)
        self._answers[name] = frozenset(items), count
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return name

    def choose(self, name: str, item_id: str) -> bool:
        """Note that the client chose an item; return whether the answer is known and has the item."""
        items, count = self._answers.get(name, (frozenset[str](), None))
        if item_id not in items:
            return False
        if count is not None:
            count()
            self._answers[name] = items, None
        return True
