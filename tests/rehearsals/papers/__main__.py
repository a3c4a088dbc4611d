"""Rehearse the recipes of recipes/papers/ on miniature corpora in the published file layouts.

python -m tests.rehearsals.papers [--only NAME ...] [--home FOLDER]
"""

import argparse
import os
import sys
import time
from pathlib import Path

import click

from tests.rehearsals.papers.rehearse import rehearse_all
from tests.rehearsals.papers.report import markdown_table, write_into
from tests.rehearsals.papers.stages import ROOT
from tests.rehearsals.papers.table import load_table

HOME, PAGE = ROOT / "runs" / "rehearsal", ROOT / "docs" / "records" / "rehearsal.md"
PROCESSES = min(2, len(os.sched_getaffinity(0)))
TABLE = "table.md"


def main() -> None:
    """Rehearse, and print and write the table."""
    table = load_table()
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--only", nargs="+", choices=table, default=list(table), metavar="NAME")
    arguments.add_argument("--home", type=Path, default=HOME)
    options = arguments.parse_args()
    started = time.monotonic()
    outcomes = rehearse_all(options.only, options.home.resolve(), PROCESSES)
    text = markdown_table(outcomes)
    (options.home.resolve() / TABLE).write_text(text + "\n")
    click.echo(text)
    click.echo(f"{len(outcomes)} recipes in {(time.monotonic() - started) / 60:.1f} minutes")
    failed = [outcome for outcome in outcomes if outcome.problems]
    if len(outcomes) == len(table):
        write_into(PAGE, outcomes)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
