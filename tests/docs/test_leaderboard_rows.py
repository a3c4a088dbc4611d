"""The table of systems in README has the rows and values of the leaderboard's page."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def table(page: str, first: str) -> list[dict[str, str]]:
    """Return the rows of the first table of a page whose head begins with the cell ``first``."""
    lines = (ROOT / page).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in _rows(lines[start:]))
    return [dict(zip(head, row, strict=True)) for row in rows]


def _rows(lines: list[str]) -> list[str]:
    return lines[: next(number for number, line in enumerate([*lines, ""]) if not line.startswith("|"))]


def test_readme_has_the_values_of_the_leaderboard() -> None:
    board = {row["system"]: row for row in table("docs/leaderboard.md", "system")}
    shown = table("README.md", "percent")
    assert {"SMILE", "BEAN", "CCA"} < {row["percent"] for row in shown}
    for row in shown:
        system = board[row.pop("percent")]
        assert row == {name: system[name] for name in row}
