"""Tables of pages that are rendered from results: ``python -m benchmarks render``.

A page has ``<!-- rendered by 'python -m benchmarks render' from SOURCE: WHAT -->`` before a table.
WHAT names columns of a table of a record, or the beginning of names in a JSON file;
``; without A, B`` leaves out rows of a record. A YAML file has published values and names results
beside them; WHAT is their page.
"""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from benchmarks import statements
from benchmarks.common import RESULTS, ROOT, Result, read_results
from benchmarks.measures import measure_hash
from bifocal.version import __version__

PART = re.compile(
    r"(<!-- rendered by 'python -m benchmarks render' from ([^\s:]+)(?:: ([^;\n]*?))?(?:; "
    r"without ([^\n]*?))? -->\n)"
    r".*?(?=<!-- end of the rendered part -->\n)",
    re.DOTALL,
)
OLDER = ", before its measure changed"
"""After the date of a value that other code of the metrics gave."""
GROUPS = ("speed", "quality", "robustness", "peers")


def benchmarks() -> dict[str, str]:
    """Return the question of each benchmark by its name: the first sentence of its docstring."""
    questions = {}
    for group in GROUPS:
        for file in sorted(Path(__file__).parent.glob(f"{group}/*.py")):
            docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
            question = " ".join(docstring.partition("\n\n")[0].split())
            if question.endswith("?"):
                questions[f"{group}.{file.stem}"] = question
    return questions


def render() -> dict[Path, str]:
    """Return the text of each page with new tables.

    Raises:
        ValueError: a statement of a page is contradicted by its record, see
            ``benchmarks.statements``.
    """
    pages = (
        ROOT / "README.md",
        ROOT / "benchmarks" / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs" / "howto").glob("*.md")),
        *sorted((ROOT / "docs" / "papers").glob("*.md")),
    )
    rendered = {page: PART.sub(_rendered, page.read_text()) for page in pages}
    for page, text in rendered.items():
        statements.check(str(page.relative_to(ROOT)), text)
    return rendered


def _rendered(part: re.Match[str]) -> str:
    begin, source, what, omitted = part.groups()
    if source == "results/*.json":
        table = overview(RESULTS)
    elif source.endswith(".yaml"):
        table = reproduced(ROOT / source, RESULTS, what)
    elif source.endswith(".json"):
        found = [
            result for result in read_results(ROOT / source) if result.name.startswith(what or "")
        ]
        rows = [
            f"|{result.name.removeprefix(what or '').strip()}|{_value(result)}|" for result in found
        ]
        table = "\n".join(["|measured|value|", "|---|---|", *rows]) + "\n"
    else:
        table = columns_of(
            (ROOT / source).read_text(), what.split(", "), (omitted or "").split(", ")
        )
    return f"{begin}\n{table}\n"


def columns_of(text: str, columns: Sequence[str], omitted: Sequence[str] = ()) -> str:
    """Return some columns of the first table that has them all, without some rows.

    Raises:
        ValueError: no table of the text has the columns.
    """
    for block in text.split("\n\n"):
        head, *rows = (
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in block.splitlines() or [""]
        )
        if set(columns) <= set(head):
            shown = [
                [row[head.index(name)] for name in columns]
                for row in [head, *rows]
                if row[0] not in omitted
            ]
            return "".join(f"|{'|'.join(row)}|\n" for row in shown)
    raise ValueError(f"no table has the columns {', '.join(columns)}")


def reproduced(file: Path, results: Path, page: str | None = None) -> str:
    """Return a table of published values beside measured ones, by default of all pages."""
    lines = ["|published|ours|same protocol|name|time|", "|---|---|---|---|---|"]
    for row in yaml.safe_load(file.read_text()):
        if page not in (None, row.get("page")):
            continue
        found = {
            result.name: result for result in read_results(results / f"{row['benchmark']}.json")
        }
        ours = _value(found[row["ours"]])
        lines.append(
            f"|{row['published']}|{ours}|{row['same']}|`{row['benchmark']}`|{row['time']}|"
        )
    return "\n".join(lines) + "\n"


def overview(results: Path) -> str:
    """Return the table of all benchmarks: the first result with a bar, or else the first, and the
    verdict of all."""
    lines = ["|question|value|verdict|", "|---|---|---|"]
    for name, question in benchmarks().items():
        found = read_results(results / f"{name}.json")
        bars = [result for result in found if result.bar is not None]
        missed = sum(result.verdict == "MISS" for result in bars)
        headline = (bars or found)[0]
        value = (
            f"{_value(headline)}, {headline.limit}".rstrip(", ")
            .replace("at most", "≤")
            .replace("at least", "≥")
        )
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
        old += OLDER if result.measure and result.measure.partition("-")[0] != measure else ""
        lines.append(
            f"| {name} | {_value(result)} | {result.limit} | {result.verdict} | "
            f"{result.date}{old} |"
        )
    return "\n".join(lines) + "\n"


def _value(result: Result) -> str:
    return f"{result.value:.4g} {result.unit}".rstrip()
