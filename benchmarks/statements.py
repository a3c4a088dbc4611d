"""Statements of pages that compare rows, checked against their records when pages are rendered.

A page has ``<!-- holds in SOURCE: COLUMN: A < B < C; COLUMN: D ~ 0 -->`` before a statement. SOURCE
is a record with tables, or a JSON file of results, whose column is "value". An item of a chain is a
row, a difference of two rows or a number; names of rows keep their commas. ``<`` compares the
values; a number beside an interval must lie outside it. ``~`` wants a number in the interval, or
two values whose deviations overlap.
"""

import itertools
import re
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import ROOT, read_results

STATEMENT = re.compile(r"<!-- holds in (\S+):\s(.*?)\s-->", re.DOTALL)
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
INTERVAL = re.compile(rf"({NUMBER}) \(({NUMBER}) to ({NUMBER})\)")
VALUE = re.compile(rf"({NUMBER})(?: ± ({NUMBER}))?")
Tables = dict[str, dict[str, str]]
"""Cell by row by column."""


class Cell(NamedTuple):
    """A value with the ends of its interval; ``exact`` if it has none."""

    value: float
    low: float
    high: float
    exact: bool


def check(page: str, text: str) -> None:
    """Raise ``ValueError`` with all statements of a page that its records contradict."""
    wrong = [
        f"{page}: {fault}"
        for source, claims in STATEMENT.findall(text)
        for claim in claims.split(";")
        if (fault := fault_of(" ".join(claim.split()), tables_of(ROOT / source)))
    ]
    if wrong:
        raise ValueError("\n".join(wrong))


def fault_of(claim: str, tables: Tables) -> str:
    """Return what is wrong with a claim such as "recall sum: CCA < SMILE", "" if it holds."""
    column, _, chain = claim.partition(": ")
    if column not in tables:
        return f"no table has a column {column!r}: {claim}"
    parts = re.split(r" ([<~]) ", chain)
    names, signs = parts[::2], parts[1::2]
    if not signs:
        return f"nothing is compared: {claim}"
    cells = []
    for name in names:
        found = _item(name, tables[column])
        if found is None:
            return f"no row {name!r} with a value: {claim}"
        cells.append(found)
    pairs = list(itertools.pairwise(cells))
    holds = all(_holds(one, other, sign) for (one, other), sign in zip(pairs, signs, strict=True))
    shown = ", ".join(f"{name} {cell.value:g}" for name, cell in zip(names, cells, strict=True))
    return "" if holds else f"this does not hold: {claim} ({shown})"


def _holds(one: Cell, other: Cell, sign: str) -> bool:
    if sign == "~":
        return one.low <= other.high and other.low <= one.high
    if one.exact != other.exact:  # a number beside an interval
        return one.high < other.low
    return one.value < other.value


def _item(name: str, column: dict[str, str]) -> Cell | None:
    first, minus, second = name.partition(" - ")
    if name in column or not minus:
        return _cell(column.get(name, name))
    one, other = _cell(column.get(first, "")), _cell(column.get(second, ""))
    if one is None or other is None:
        return None
    value = one.value - other.value
    return Cell(value, value, value, exact=True)


def _cell(text: str) -> Cell | None:
    if found := INTERVAL.fullmatch(text):
        value, low, high = (_number(part) for part in found.groups())
        return Cell(value, low, high, exact=False)
    if found := VALUE.fullmatch(text):
        value, spread = _number(found[1]), _number(found[2] or "0")
        return Cell(value, value - spread, value + spread, exact=True)
    return None


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def tables_of(source: Path) -> Tables:
    """Return the cells of all tables of a record, or the values of a file of results; a row of an
    earlier table with the same column stays."""
    if source.suffix == ".json":
        return {"value": {result.name: f"{result.value:.9f}" for result in read_results(source)}}
    found: Tables = {}
    for block in source.read_text().split("\n\n"):
        lines = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()
        ]
        for row in lines[2:] if block.startswith("|") else ():
            for column, cell in zip(lines[0][1:], row[1:], strict=False):
                found.setdefault(column, {}).setdefault(row[0], cell)
    return found
