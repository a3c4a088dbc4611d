"""``make size``: lines by room, and the budgets."""

import runpy
from pathlib import Path

SIZE = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "size.py"))


def write(root: Path, path: str, lines: int) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("x = 1\n" * lines)


def test_a_layer_over_its_budget_fails_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bifocal.size]\nlibrary = 10\ncommands = 4\n")
    write(tmp_path, "library/__init__.py", 1)
    write(tmp_path, "library/losses/softplus.py", 5)
    write(tmp_path, "library/losses/deep/triplet.py", 2)
    write(tmp_path, "commands/main.py", 5)
    table, errors = SIZE["report"](tmp_path)
    rows = {row.split()[0]: row.split()[1:] for row in table.splitlines() if row}
    assert rows["library"] == ["8", "10"]
    assert rows["library/losses"] == ["7"]
    assert rows["library/*.py"] == ["1"]
    assert rows["total"] == ["13", "14"]
    (error,) = errors
    assert error.startswith("commands has 5 lines of Python, 1 over its budget")
    assert "raise 'commands' in [tool.bifocal.size] of pyproject.toml" in error


def test_a_layer_at_its_budget_passes(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bifocal.size]\nlibrary = 3\n")
    write(tmp_path, "library/__init__.py", 3)
    assert SIZE["report"](tmp_path)[1] == []
