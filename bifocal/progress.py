"""Progress of long tasks on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 10.0
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, separators of lines, signs that turn the direction of a text, and
surrogates."""


def track(
    items: Iterable[T],
    task: str,
    total: int | None = None,
    done: int = 0,
    status: Callable[[], str] = lambda: "",
) -> Iterator[T]:
    """Yield ``items`` and show the progress on stderr, with ``status()`` about the last item, such
    as its loss.

    ``total``, by default ``len(items) + done``, includes the ``done`` items of an earlier,
    interrupted run.
    """
    if total is None and isinstance(items, Sized):
        total = len(items) + done
    console = Console(stderr=True)
    if console.is_terminal:
        return _bar(items, task, total, done, status, console)
    return _lines(items, task, total, done, status)


def plain(text: object, length: int = 160) -> Text:
    """Return a text of somebody else for ``rich``: printable, cut, and without markup."""
    return Text(printable(text)[:length])


def printable(text: object) -> str:
    r"""Return a text whose control characters are escaped: a name cannot change the terminal, or
    write a line.

    >>> printable("a\x1b[31m.jpg")
    'a\\x1b[31m.jpg'
    """

    def escaped(found: re.Match[str]) -> str:
        letter = ord(found[0])
        # Python has bytes of a name that are not UTF-8 as surrogates.
        return (
            f"\\x{letter - 0xDC00:02x}"
            if 0xDC80 <= letter <= 0xDCFF
            else found[0].encode("unicode_escape").decode()
        )

    return CONTROL.sub(escaped, str(text))


def log_line(line: str) -> None:
    """Print one line to stderr, see ``printable``."""
    print(printable(line), file=sys.stderr, flush=True)  # noqa: T201 - all progress goes through this function


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.1f}/s")


def _bar(
    items: Iterable[T],
    task: str,
    total: int | None,
    done: int,
    status: Callable[[], str],
    console: Console,
) -> Iterator[T]:
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(task, total=total, completed=done, status="")
        for item in items:
            yield item
            progress.update(bar, advance=1, status=status())


def _lines(
    items: Iterable[T], task: str, total: int | None, done: int, status: Callable[[], str]
) -> Iterator[T]:
    start = last_line = time.monotonic()
    for count, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last_line >= SECONDS_BETWEEN_LINES:
            last_line = now
            rate = count / (now - start)
            of_total, remaining = "", ""
            if total is not None:
                of_total, remaining = (
                    f" of {total}",
                    f", {(total - done - count) / rate:.0f} s left",
                )
            details = f"; {status()}" if status() else ""
            log_line(f"{task}: {done + count}{of_total}, {rate:.1f}/s{remaining}{details}")
