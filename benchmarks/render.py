"""Rendered tables: an overview in ``benchmarks/README.md``, the systems in the ``README.md`` of the repository."""

import ast
from pathlib import Path

from benchmarks.common import RESULTS, Result, read_results
from benchmarks.measures import measure_hash
from bifocal.version import __version__

README = Path(__file__).with_name("README.md")
FRONT_PAGE = README.parents[1] / "README.md"
LEADERBOARD = README.parents[1] / "docs" / "leaderboard.md"
BEGIN = "<!-- rendered by 'python -m benchmarks render' from {source} -->\n"
END = "<!-- end of the rendered part -->\n"
OLDER = ", before its measure changed"
"""After the date of a value that other code of the metrics gave."""
GROUPS = ("speed", "quality", "robustness")
COLUMNS = ("system", "differs from the paper", "caption R@1", "image R@1", "pointing", "NDCG")
OMITTED = ("WSABIE", "order-free")
"""Columns of the leaderboard on the front page, and rows that are not there."""


def benchmarks() -> dict[str, str]:
    """Return the question of each benchmark by its name: the first line of its docstring."""
    questions = {}
    for group in GROUPS:
        for file in sorted(README.parent.glob(f"{group}/*.py")):
            docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
            question = docstring.partition("\n")[0]
            if question.endswith("?"):
                questions[f"{group}.{file.stem}"] = question
    return questions


def render() -> dict[Path, str]:
    """Return the text of each page with new tables."""
    return {
        README: _fill(README, "results/*.json", overview(RESULTS)),
        FRONT_PAGE: _fill(FRONT_PAGE, "docs/leaderboard.md", systems_table(LEADERBOARD.read_text())),
    }


def _fill(page: Path, source: str, table: str) -> str:
    begin = BEGIN.format(source=source)
    head, _, rest = page.read_text().partition(begin)
    _, _, tail = rest.partition(END)
    return f"{head}{begin}\n{table}\n{END}{tail}"


def systems_table(page: str) -> str:
    """Return ``COLUMNS`` of the first table of the leaderboard's page, without the rows ``OMITTED``."""
    lines = page[page.index(f"| {COLUMNS[0]} |") :].partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    places = [rows[0].index(column) for column in COLUMNS]
    shown = [[row[place] for place in places] for row in rows if row[0] not in OMITTED]
    return "".join(f"| {' | '.join(row)} |\n" for row in shown)


def overview(results: Path) -> str:
    """Return the table of all benchmarks: the first result with a bar, or else the first, and the verdict of all."""
    lines = ["|question|value|verdict|", "|---|---|---|"]
    for name, question in benchmarks().items():
        found = read_results(results / f"{name}.json")
        bars = [result for result in found if result.bar is not None]
        missed = sum(result.verdict == "MISS" for result in bars)
        headline = (bars or found)[0]
        value = f"{_value(headline)}, {headline.limit}".rstrip(", ").replace("at most", "≤").replace("at least", "≥")
        verdict = f"MISS: {missed} of {len(bars)}" if missed else "ok" if bars else ""
        lines.append(f"|[{question}](results/{name}.json)|{value}|{verdict}|")
    return "\n".join(lines) + "\n"


def result_table(file: Path) -> str:
    """Return the question of a benchmark and the table of its results, from its JSON file."""
    head = ("| measured | value | bar | verdict | date |", "| --- | --- | --- | --- | --- |")
    lines = [benchmarks()[file.stem], "", *head]
    measure = measure_hash(file.stem)
    for result in read_results(file):
        name = result.name + (f" ({result.reference})" if result.reference else "")
        old = "" if result.version in ("", __version__) else f", version {result.version}"
        old += OLDER if result.measure and result.measure != measure else ""
        lines.append(f"| {name} | {_value(result)} | {result.limit} | {result.verdict} | {result.date}{old} |")
    return "\n".join(lines) + "\n"


def _value(result: Result) -> str:
    return f"{result.value:.4g} {result.unit}".rstrip()
