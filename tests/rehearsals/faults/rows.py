"""Rows of the table of faults: recorded by tests, collected by
``python -m tests.rehearsals.faults``."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

PROPERTY = "fault"
FOLDERS = re.compile(r"(?:/[\w.+-]+)*/pytest-of-\w+/pytest-\d+/[\w.+-]+/")
LONGEST = 240
"""Characters of a message in the table."""
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


def record(
    property_of_test: Record,
    fault: str,
    where: str,
    outcome: str,
    *,
    trials: int = 1,
    error: str = "",
) -> None:
    """Record what was observed. Folders in a message are cut, because they belong to one
    machine."""
    property_of_test(PROPERTY, asdict(Row(fault, where, trials, outcome, tidy(error))))


def rows(properties: list[tuple[str, Any]]) -> list[Row]:
    """Return the rows among the properties of a test."""
    return [Row(**value) for name, value in properties if name == PROPERTY]


def tidy(message: str) -> str:
    """Return a message in one line, without the temporary folder of the test and with short hashes.

    >>> tidy("error: /tmp/pytest-of-me/pytest-1/test_a0/dataset is missing")
    'error: dataset is missing'
    """
    line = HASHES.sub(lambda match: match.group()[:8], FOLDERS.sub("", " ".join(message.split())))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
