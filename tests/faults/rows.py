"""Rows of the table of faults: recorded by tests, collected by ``python -m tests.faults``."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

PROPERTY = "fault"
PATHS = re.compile(r"(?:/[\w.+-]+){2,}/")
HASHES = re.compile(r"\b[0-9a-f]{32,64}\b")
Record = Callable[[str, object], None]
"""Type of pytest's fixture ``record_property``."""


@dataclass(frozen=True)
class Row:
    """One kind of fault in one place.

    Attributes:
        fault: what was done, such as "kill -9".
        where: command or stage.
        trials: how often.
        outcome: what came of it.
        error: message that was observed; "" if there was none.
    """

    fault: str
    where: str
    trials: int
    outcome: str
    error: str = ""


def record(property_of_test: Record, fault: str, where: str, outcome: str, *, trials: int = 1, error: str = "") -> None:
    """Record what was observed. The folders of a message are cut, because they are those of one machine."""
    property_of_test(PROPERTY, asdict(Row(fault, where, trials, outcome, tidy(error))))


def rows(properties: list[tuple[str, Any]]) -> list[Row]:
    """Return the rows among the properties of a test."""
    return [Row(**value) for name, value in properties if name == PROPERTY]


def tidy(message: str) -> str:
    """Return a message in one line, without folders of this machine and with short hashes.

    >>> tidy("error: /tmp/a/b/dataset is missing")
    'error: dataset is missing'
    """
    line = " ".join(message.split())
    return HASHES.sub(lambda match: match.group()[:8], PATHS.sub("", line))
