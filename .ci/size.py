"""Lines of Python by room, with a budget for each layer: ``make size``."""

import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def budgets(root: Path) -> dict[str, int]:
    """Return the line budget of each layer: ``[tool.bifocal.size]`` in ``pyproject.toml``."""
    table: dict[str, int] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["bifocal"]["size"]
    return table


def lines_by_room(root: Path, layer: str) -> Counter[str]:
    """Return the lines of each folder of a layer; the modules beside the folders count as the room ``layer/*.py``."""
    rooms = Counter[str]()
    for file in (root / layer).rglob("*.py"):
        parts = file.relative_to(root).parts
        rooms["/".join(parts[:2]) if len(parts) > 2 else f"{layer}/*.py"] += len(file.read_bytes().splitlines())
    return rooms


def report(root: Path) -> tuple[str, list[str]]:
    """Return the table, and a sentence for each layer over its budget."""
    rows, errors = [f"{'room':40} {'lines':>7} {'budget':>7}"], []
    allowed = budgets(root)
    total = 0
    for layer, budget in allowed.items():
        rooms = lines_by_room(root, layer)
        lines = rooms.total()
        total += lines
        rows += ["", f"{layer:40} {lines:7,} {budget:7,}"]
        rows += [f"  {room:38} {count:7,}" for room, count in sorted(rooms.items())]
        if lines > budget:
            errors.append(
                f"{layer} has {lines:,} lines of Python, {lines - budget:,} over its budget: delete code, or raise "
                f"'{layer}' in [tool.bifocal.size] of pyproject.toml and give the reason in the commit"
            )
    rows += ["", f"{'total':40} {total:7,} {sum(allowed.values()):7,}"]
    return "\n".join(rows), errors


if __name__ == "__main__":
    table, errors = report(ROOT)
    sys.stdout.write(table + "\n")
    sys.exit("\n".join(f"error: {error}" for error in errors) or 0)
