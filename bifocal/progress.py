"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 10.0


def track(
    items: Iterable[T],
    task: str,
    total: int | None = None,
    done: int = 0,
    note: Callable[[], str] = lambda: "",
) -> Iterator[T]:
    """Yield ``items`` and show on stderr how far they are.

    Args:
        task: what is done, in a few words.
        total: number of items in all, ``done`` included; ``len(items) + done`` if it is not given.
        done: items that an earlier, interrupted run has finished.
        note: what else there is to say of the last item.
    """
    if total is None and isinstance(items, Sized):
        total = len(items) + done
    console = Console(stderr=True)
    if console.is_terminal:
        return _bar(items, task, total, done, note, console)
    return _lines(items, task, total, done, note)


def _bar(
    items: Iterable[T], task: str, total: int | None, done: int, note: Callable[[], str], console: Console
) -> Iterator[T]:
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(task, total=total, completed=done, note="")
        for item in items:
            yield item
            progress.update(bar, advance=1, note=note())


def _lines(items: Iterable[T], task: str, total: int | None, done: int, note: Callable[[], str]) -> Iterator[T]:
    start = said = time.monotonic()
    for count, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - said >= SECONDS_BETWEEN_LINES:
            said = now
            rate = count / (now - start)
            left = f", {(total - done - count) / rate:.0f} s left" if total is not None else ""
            of = f" of {total}" if total is not None else ""
            more = f"; {note()}" if note() else ""
            say(f"{task}: {done + count}{of}, {rate:.1f} a second{left}{more}")


def say(line: str) -> None:
    """Print one line for the person who waits."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the one place that prints
