"""Entries of a file's records: a record that cannot be read is listed with its place, and the
others are kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bifocal.datasets.base import Box, RejectedEntry

LARGEST = 2**63 - 1
R = TypeVar("R")
T = TypeVar("T")


def read_entries(
    kind: str,
    records: Iterable[tuple[str, R]],
    read: Callable[[R], T],
    rejected: list[RejectedEntry],
) -> list[T]:
    """Return the entries that ``read`` makes of records; list a record that it refuses, or does not
    expect.

    Args:
        kind: "image", "caption", "phrase" or "label".
        records: place, such as "captions.json, id 5", and value of each record.
        rejected: list that gets the places and the reasons.
    """
    found = []
    for place, record in records:
        try:
            found.append(read(record))
        except KeyError as error:
            rejected.append(RejectedEntry(kind, place, f"no {error}"))
        except (TypeError, AttributeError, IndexError):
            rejected.append(
                RejectedEntry(kind, place, f"not in the published format: {shown(record)}")
            )
        except (ValueError, OverflowError) as error:
            rejected.append(RejectedEntry(kind, place, str(error)))
    return found


def placed(file: str, records: Iterable[Any], key: str = "id") -> Iterator[tuple[str, Any]]:
    """Yield the records of a list in a JSON file with their places: by ``key``, or else by their
    numbers from 1."""
    if isinstance(records, str | Mapping):
        raise TypeError(f"{shown(records)}: expected a list")
    for number, record in enumerate(records, start=1):
        label = record.get(key) if isinstance(record, Mapping) else None
        yield (
            f"{file}, " + (f"entry {number}" if label is None else f"{key} {shown(label)}"),
            record,
        )


def numbered(path: Path, lines: Iterable[T]) -> Iterator[tuple[str, T]]:
    """Yield the lines of a text file with their places."""
    return ((f"{path.name}, line {number}", line) for number, line in enumerate(lines, start=1))


def read_text(value: Any) -> str:
    """Return a text; ``ValueError`` for a value of another type, which never becomes a text."""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)}: expected a text")
    return value


def read_whole(value: Any) -> int:
    """Return a whole number of 64 bits, which may be a text or a float; ``ValueError`` for another
    value."""
    try:
        whole = (
            int(value)
            if isinstance(value, int | float | str) and not isinstance(value, bool)
            else None
        )
    except (ValueError, OverflowError):
        whole = None
    if whole is None or abs(whole) > LARGEST or (isinstance(value, float) and whole != value):
        raise ValueError(f"{shown(value)}: expected a whole number")
    return whole


def read_id(value: Any) -> str:
    """Return an id, a number or a text, as a text."""
    return value if isinstance(value, str) and value else str(read_whole(value))


def read_size(record: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (width, height) of an image; None if one of them is missing."""
    width, height = record.get("width"), record.get("height")
    return None if width is None or height is None else (read_whole(width), read_whole(height))


def read_box(values: Any) -> Box:
    """Return x y width height of a box, in pixels, as its edges."""
    try:
        x, y, width, height = (float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"box {shown(values)}: expected four numbers") from None
    return x, y, x + width, y + height


def shown(value: Any) -> str:
    """Return a value as the short text of a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
