"""Lines of Python by room, and words of the documentation, with a budget each: ``make size``."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
LAYERS = ("bifocal", "runtime", "components", "pipelines")
BUDGET = 59_978
"""Largest number of lines. A change that adds lines deletes as many; only an issue raises the
budget."""
WORDS = 45_000
"""Largest number of words of all Markdown files but ``docs/records/``."""


def lines_by_room(root: Path, layer: str) -> dict[str, list[int]]:
    """Return the lines of each file by folder of a layer; modules beside the folders are the room
    ``layer/*.py``."""
    rooms = defaultdict[str, list[int]](list)
    for file in (root / layer).rglob("*.py"):
        parts = file.relative_to(root).parts
        rooms["/".join(parts[:2]) if len(parts) > 2 else f"{layer}/*.py"].append(
            len(file.read_bytes().splitlines())
        )
    return rooms


def words(root: Path) -> int:
    """Return the words of the Markdown files that git tracks, without ``docs/records/``."""
    names = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    return sum(
        len((root / name).read_text().split())
        for name in names.split()
        if "docs/records/" not in name
    )


def report(root: Path, budget: int = BUDGET) -> tuple[str, str | None]:
    """Return the table, and a sentence if there are more lines than the budget."""
    rows = [f"{'room':40} {'lines':>7} {'files':>6} {'median':>7}"]
    every: list[int] = []
    for layer in LAYERS:
        rooms = lines_by_room(root, layer)
        files = [lines for room in rooms.values() for lines in room]
        every += files
        rows += [
            "",
            _row(layer, files),
            *(_row(f"  {room}", rooms[room]) for room in sorted(rooms)),
        ]
    rows += ["", _row("total", every), f"{'budget':40} {budget:7,}"]
    if sum(every) <= budget:
        return "\n".join(rows), None
    return "\n".join(
        rows
    ), f"{sum(every):,} lines of Python, {sum(every) - budget:,} over the budget: delete code"


def _row(name: str, files: list[int]) -> str:
    return f"{name:40} {sum(files):7,} {len(files):6,} {median(files or [0]):7.0f}"


if __name__ == "__main__":
    table, error = report(ROOT)
    count = words(ROOT)
    sys.stdout.write(
        f"{table}\n\n{'words of the documentation':40} {count:7,}\n{'budget':40} {WORDS:7,}\n"
    )
    if count > WORDS:
        error = (
            error
            or f"{count:,} words of documentation, {count - WORDS:,} over the budget: shorten "
            "a page"
        )
    sys.exit(error and f"error: {error}")
