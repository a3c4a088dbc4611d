"""Tokens of Python by room, and words of the documentation, with a bar each: ``make size``."""

import ast
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
LAYERS = ("bifocal", "runtime", "components", "pipelines")
TOKENS = 432_800
"""Bar of the tokens: without comments, docstrings, line ends and indents."""
WORDS = 45_000
"""Bar of the words in all Markdown files but ``docs/records/``."""
SLACK = 0.01
"""Share above a bar that a change may use. Only an issue moves a bar."""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


START, END = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)


def tokens(text: str) -> int:
    """Return the number of tokens of a module, without docstrings and layout.

    An f-string is one token, as before Python 3.12.
    """
    docstrings = {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    count = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        depth -= token.type == END
        if not depth and token.type not in LAYOUT and token.start not in docstrings:
            count += token.type != START
        depth += token.type == START
    return count


def tokens_by_room(root: Path, layer: str) -> dict[str, list[int]]:
    """Return the tokens of each file by folder of a layer; ``layer/*.py`` has its modules."""
    rooms = defaultdict[str, list[int]](list)
    for file in (root / layer).rglob("*.py"):
        parts = file.relative_to(root).parts
        room = "/".join(parts[:2]) if len(parts) > 2 else f"{layer}/*.py"
        rooms[room].append(tokens(file.read_text()))
    return rooms


def words(root: Path) -> int:
    """Return the words of the Markdown files that git tracks, without ``docs/records/``."""
    command = ["git", "ls-files", "*.md"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    kept = (name for name in names.split() if "docs/records/" not in name)
    return sum(len((root / name).read_text().split()) for name in kept)


def report(root: Path) -> tuple[str, int]:
    """Return the table of rooms, and the number of all tokens."""
    rows = [f"{'room':40} {'tokens':>8} {'files':>6} {'median':>7}"]
    every: list[int] = []
    for layer in LAYERS:
        rooms = tokens_by_room(root, layer)
        files = [count for room in rooms.values() for count in room]
        every += files
        rows += [
            "",
            _row(layer, files),
            *(_row(f"  {room}", rooms[room]) for room in sorted(rooms)),
        ]
    return "\n".join([*rows, "", _row("total", every)]), sum(every)


def excess(count: int, bar: int, unit: str, remedy: str) -> str | None:
    """Return a sentence if ``count`` is above the bar and its slack."""
    most = int(bar * (1 + SLACK))
    return f"{count:,} {unit}, at most {most:,}: {remedy}" if count > most else None


def _row(name: str, files: list[int]) -> str:
    return f"{name:40} {sum(files):8,} {len(files):6,} {median(files or [0]):7.0f}"


if __name__ == "__main__":
    table, count = report(ROOT)
    written = words(ROOT)
    sys.stdout.write(
        f"{table}\n{'bar':40} {TOKENS:8,}\n\n"
        f"{'words of the documentation':40} {written:8,}\n{'bar':40} {WORDS:8,}\n"
    )
    errors = (
        excess(count, TOKENS, "tokens of Python", "delete code"),
        excess(written, WORDS, "words of documentation", "shorten a page"),
    )
    sys.exit("\n".join(f"error: {error}" for error in errors if error) or None)
