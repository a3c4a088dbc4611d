"""Answers whose client may say which result it chose."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

MAX_ANSWERS = 20_000


@dataclass
class _Answer:
    items: frozenset[str]
    count: Callable[[], None] | None


class Answers:
    """The last ``limit`` answers with their results.

    Example:
        >>> answers, clicks = Answers(), []
        >>> name = answers.add(["a", "b"], lambda: clicks.append(1))
        >>> answers.choose(name, "b"), answers.choose(name, "a"), answers.choose(name, "z"), len(clicks)
        (True, True, False, 1)
    """

    def __init__(self, limit: int = MAX_ANSWERS) -> None:
        self._limit = limit
        self._answers: OrderedDict[str, _Answer] = OrderedDict()

    def add(self, items: Collection[str], count: Callable[[], None]) -> str:
        """Return a new answer's id; ``count`` is called when one of its items is first chosen."""
        name = secrets.token_urlsafe(12)
        self._answers[name] = _Answer(frozenset(items), count)
        if len(self._answers) > self._limit:
            self._answers.popitem(last=False)
        return name

    def choose(self, name: str, item_id: str) -> bool:
        """Note that the client chose an item; return whether the answer is known and has the item."""
        answer = self._answers.get(name)
        if answer is None or item_id not in answer.items:
            return False
        if answer.count is not None:
            answer.count()
            answer.count = None
        return True
