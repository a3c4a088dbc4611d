"""Comparison of an evaluation with a registered version, on the queries that both answered."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from bifocal.evaluation.rank_tables import RANKS
from bifocal.promotion.comparison import Difference, compare_ranks
from bifocal.report.html import render
from bifocal.report.sections import Badge, Page, Section, Table
from runtime.mlflow import get_version

COLUMNS = ("", "this run", "version", "difference", "95 %", "")
VERDICTS = {1: Badge("better", good=True), -1: Badge("worse", good=False), 0: Badge("no clear difference")}


def compare_with_version(
    metrics: Path, model: str, alias: str, ks: Sequence[int], *, resamples: int, seed: int
) -> tuple[int, list[Difference]]:
    """Compare the ranks in ``metrics`` with those of the version of ``model`` that has ``alias``.

    Args:
        metrics: artifact of the stage evaluate.
        ks: K of R@K.
        resamples: of the images, for the intervals.

    Returns:
        number of the version, and one difference per metric; none if the two share no query.

    Raises:
        FileNotFoundError: ``metrics`` holds no ranks.
        ValueError: no version has the alias, or it was registered without ranks or evaluated under another protocol.
    """
    if not (metrics / RANKS).is_file():
        raise FileNotFoundError(f"{metrics / RANKS} does not exist: run evaluate first")
    version = get_version(model, alias)
    if version is None:
        raise ValueError(
            f"no version of {model} has the alias {alias!r}: 'python -m pipelines promote' makes the candidate "
            "the champion if it meets promotion.yaml; --alias candidate compares with the candidate itself"
        )
    with TemporaryDirectory() as folder:
        _, evaluation = version.download(Path(folder))
        if not (evaluation / RANKS).is_file():
            raise ValueError(f"version {version.number} of {model} was registered without {RANKS}")
        reference = pd.read_parquet(evaluation / RANKS)
    current = pd.read_parquet(metrics / RANKS)
    return version.number, compare_ranks(current, reference, ks, resamples=resamples, seed=seed)


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
    """Return an HTML page with the table.

    Args:
        name: of the version.
    """
    note = "Percentage points, on the queries that both answered, with intervals of a paired bootstrap over images."
    page = Page(f"This run and {name}", "", [], [Section("Comparison", note, [table])])
    return render(page)
