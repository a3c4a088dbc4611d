"""Cron expressions of six fields, as Kubeflow has them: seconds first."""

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from itertools import product

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("weekday", 0, 6, WEEKDAYS),
)
DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def check_cron(expression: str) -> str:
    """Return ``expression`` if it is valid; raise ``ValueError`` with the wrong field."""
    values, (_, _, _, day, month, weekday) = _values(expression), expression.split()
    if weekday in ("*", "?") and min(values["day"]) > max(
        DAYS_OF_MONTH[number - 1] for number in values["month"]
    ):
        raise ValueError(
            f"cron {expression!r}: no month in {month!r} has a day {day}, so it would never run"
        )
    return expression


def start_days(expression: str, year: int) -> Iterator[date]:
    """Yield the days of a year on which a valid expression starts a run; a day and a weekday are
    alternatives."""
    values, (_, _, _, day_part, _, weekday_part) = _values(expression), expression.split()
    either = not day_part.startswith(("*", "?")) and not weekday_part.startswith(("*", "?"))
    day = date(year, 1, 1)
    while day.year == year:
        fits = (day.day in values["day"], day.isoweekday() % 7 in values["weekday"])
        if day.month in values["month"] and (any(fits) if either else all(fits)):
            yield day
        day += timedelta(days=1)


def start_seconds(expression: str) -> list[int]:
    """Return the starts of a valid expression within a day, in seconds."""
    values = _values(expression)
    times = product(*(sorted(values[name]) for name in ("hour", "minute", "second")))
    return [3600 * hour + 60 * minute + second for hour, minute, second in times]


def next_start(expression: str, now: datetime) -> datetime | None:
    """Return the first start of a valid expression after ``now``, until the end of the next
    year."""
    seconds = start_seconds(expression)
    for day in (*start_days(expression, now.year), *start_days(expression, now.year + 1)):
        midnight = datetime.combine(day, time(), now.tzinfo)
        starts = (midnight + timedelta(seconds=second) for second in seconds)
        if found := next((start for start in starts if start > now), None):
            return found
    return None


def _values(expression: str) -> dict[str, set[int]]:
    parts = expression.split()
    if len(parts) != len(FIELDS):
        names = " ".join(name for name, *_ in FIELDS)
        hint = "; the seconds are missing, put '0 ' first" if len(parts) == len(FIELDS) - 1 else ""
        raise ValueError(
            f"cron {expression!r} has {len(parts)} fields, expected six: {names}{hint}"
        )
    return {
        field[0]: _field_values(part, *field, expression)
        for part, field in zip(parts, FIELDS, strict=True)
    }


def _field_values(
    part: str, name: str, low: int, high: int, words: tuple[str, ...], expression: str
) -> set[int]:
    values: set[int] = set()
    for piece in part.lower().split(","):
        match = re.fullmatch(r"(?:([*?])|(\w+)(?:-(\w+))?)(?:/(\d+))?", piece)
        try:
            if match is None:
                raise ValueError(piece)
            star, first, last, step = match.groups()
            start = low if star else _number(first, low, words)
            end = high if star or (step and not last) else _number(last or first, low, words)
            if not low <= start <= end <= high or step == "0":
                raise ValueError(piece)
        except ValueError:
            raise ValueError(
                f"cron {expression!r}: {piece!r} is not a valid {name}; expected {low} to "
                f"{high}, *, a-b, a,b or */n"
            ) from None
        values |= set(range(start, end + 1, int(step or 1)))
    return values


def _number(text: str, low: int, words: tuple[str, ...]) -> int:
    return words.index(text) + low if text in words else int(text)
