"""Make the inputs of faults that users of other tools reported, run real commands on them, and
print a table.

python -m tests.rehearsals.reports [KIND ...]

Kinds are those of the table, such as D3; by default all. Needs no network. Exits with 1 if a value
differs.
"""

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.rehearsals.reports import (  # noqa: F401 - each declares its cases
    answers,
    broken,
    captions,
    corpora,
    dates,
    folders,
    neighbors,
    operation,
    photographs,
    readings,
    registry,
    spellings,
    tables,
    trainings,
)
from tests.rehearsals.reports.world import CASES, Case, Shared, World, shown

COLUMNS = ("", "case", "source", "expected", "seen")


def judge(cases: Iterable[Case], folder: Path) -> tuple[list[str], list[Case]]:
    """Run cases; return the rows of the table, and the cases with another value than the expected
    one."""
    shared, rows, failed = Shared(folder / "shared"), list[str](), list[Case]()
    for number, case in enumerate(cases):
        try:
            seen, is_right = case.judge(World(folder / f"{number}", shared))
        except Exception as error:
            traceback.print_exc()
            seen, is_right = shown(f"{type(error).__name__}: {error}"), False
        failed += [] if is_right else [case]
        name = f"{case.kind} {case.title}"
        rows.append(
            f"| {'ok' if is_right else 'MISS'} | {name} | {case.source} | "
            f"{shown(case.expected)} | {seen} |"
        )
        click.echo(rows[-1])
    return rows, failed


def main(kinds: list[str]) -> None:
    """Print the table, and exit with 1 if a value differs."""
    click.echo(f"| {' | '.join(COLUMNS)} |\n|{len(COLUMNS) * ' --- |'}")
    with TemporaryDirectory() as folder:
        rows, failed = judge(
            [case for case in CASES if not kinds or case.kind in kinds], Path(folder).resolve()
        )
    click.echo(f"\n{len(rows) - len(failed)} of {len(rows)} cases have the expected value")
    sys.exit(1 if failed or not rows else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
