"""The table of results in ``benchmarks/README.md``, rendered from ``benchmarks/results/*.json``."""

import ast
from pathlib import Path

from benchmarks.common import RESULTS, read_results
from benchmarks.measures import measure_hash
from bifocal.version import __version__

README = Path(__file__).with_name("README.md")
BEGIN = "<!-- rendered by 'python -m benchmarks render' from results/*.json -->\n"
END = "<!-- end of the rendered part -->\n"
OLDER = ", before its measure changed"
"""After the date of a value that other code of the metrics gave."""
GROUPS = ("speed", "quality", "robustness")


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


def render(results: Path = RESULTS) -> str:
    """Return the README with a new table."""
    head, _, rest = README.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{_tables(results)}\n{END}{tail}"


def _tables(results: Path) -> str:
    lines = []
    for name, question in benchmarks().items():
        lines += [f"**`{name}`**: {question}", ""]
        file = results / f"{name}.json"
        if not file.is_file():
            lines += ["No result.", ""]
            continue
        lines += ["| measured | value | bar | verdict | date |", "| --- | --- | --- | --- | --- |"]
        measure = measure_hash(name)
        for result in read_results(file):
            name_and_reference = result.name + (f" ({result.reference})" if result.reference else "")
            value = f"{result.value:.4g} {result.unit}".rstrip()
            old = "" if result.version in ("", __version__) else f", version {result.version}"
            old += OLDER if result.measure and result.measure != measure else ""
            cells = [name_and_reference, value, result.limit, result.verdict, result.date + old]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)
