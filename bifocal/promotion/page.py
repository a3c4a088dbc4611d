"""Comparison of two models as a table and as an HTML page."""

from collections.abc import Sequence

from bifocal.promotion.comparison import Difference
from bifocal.report.html import render
from bifocal.report.sections import Badge, Page, Section, Table

COLUMNS = ("", "this run", "version", "difference", "95 %", "")
VERDICTS = {1: Badge("better", good=True), -1: Badge("worse", good=False), 0: Badge("no clear difference")}


def difference_table(differences: Sequence[Difference]) -> Table:
    """Return the differences as a table of the report."""
    rows: list[list[str | Badge]] = [
        [
            row.name.replace("_", " "),
            f"{row.current:.1f}",
            f"{row.reference:.1f}",
            f"{row.gain:+.1f}",
            f"{row.interval[0]:+.1f} to {row.interval[1]:+.1f}",
            VERDICTS[row.sign],
        ]
        for row in differences
    ]
    return Table("", COLUMNS, rows, wide=True)


def comparison_page(name: str, table: Table) -> str:
    """Return an HTML page with the table of a comparison with the version ``name``."""
    note = "Percentage points, on the queries that both answered, with intervals of a paired bootstrap over images."
    page = Page(f"This run and {name}", "", [], [Section("Comparison", note, [table])])
    return render(page)
