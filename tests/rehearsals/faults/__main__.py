"""Cause every fault, and write the table of docs/records/reliability.md.

python -m tests.rehearsals.faults [NAME ...]

The names are in FILES; the default is all of them. Rows of other files are kept.
"""

import json
import os
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path

import click
import pytest

from tests.rehearsals.faults.checkout import ROOT
from tests.rehearsals.faults.rows import Row, rows

FOLDER = Path(__file__).parent
FILES = {
    **{
        name: FOLDER / f"{name}.py"
        for name in (
            "kills",
            "disks",
            "test_files",
            "test_machine",
            "test_matrix",
            "test_pods",
            "test_servers",
        )
    },
    "test_disk_full": ROOT / "tests" / "components" / "test_disk_full.py",
}
RESULTS, PAGE = FOLDER / "results.json", ROOT / "docs" / "records" / "reliability.md"
BEGIN, END = (
    "<!-- faults: written by python -m tests.rehearsals.faults -->",
    "<!-- end of the faults -->",
)
COLUMNS = ("fault", "where", "trials", "outcome", "error", "date")


class Collector:
    """Plugin of pytest that keeps the rows of each test, and the tests that failed."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the rows of a test that has passed."""
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call":
            self.rows += rows(report.user_properties)


def main() -> None:
    """Run the files, and write the results and the table."""
    names = sys.argv[1:] or list(FILES)
    unknown = set(names) - set(FILES)
    if unknown:
        raise SystemExit(
            f"tests/rehearsals/faults has no {sorted(unknown)[0]!r}: {', '.join(FILES)}"
        )
    os.environ["BIFOCAL_FAULTS"] = "long"  # before tests.rehearsals.faults.form is imported
    collector = Collector()
    pytest.main(
        ["-p", "no:cacheprovider", "-n", "0", "-q", *(str(FILES[name]) for name in names)],
        [collector],
    )
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    day = date.today().isoformat()
    found = [asdict(row) | {"date": day} for row in collector.rows]
    results |= {f"{row['fault']} {row['where']}": row for row in found}
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), list(results.values())))
    click.echo(
        f"{len(found)} rows, {len(collector.failed)} failed tests: {' '.join(collector.failed)}"
    )
    sys.exit(bool(collector.failed))


def with_table(page: str, results: list[dict[str, object]]) -> str:
    """Return the text of a page with the table between its two marks."""
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    lines = [
        COLUMNS,
        ["---"] * len(COLUMNS),
        *([str(row[name]) for name in COLUMNS] for row in ordered(results)),
    ]
    table = "\n".join(
        f"| {' | '.join(cell.replace('|', ' ') for cell in line)} |" for line in lines
    )
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def ordered(results: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the rows in the order of the table."""
    return sorted(
        results, key=lambda row: (str(row["fault"]).strip("`").lower(), str(row["where"]))
    )


if __name__ == "__main__":
    main()
