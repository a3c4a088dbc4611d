"""``make size``: lines and files by room, and the budget; shapes of files and folders."""

import runpy
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIZE = runpy.run_path(str(ROOT / ".ci" / "size.py"))


def write(root: Path, path: str, lines: int) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("x = 1\n" * lines)


def test_table_counts_rooms_and_a_total_over_the_budget_fails(tmp_path: Path) -> None:
    write(tmp_path, "bifocal/__init__.py", 1)
    write(tmp_path, "bifocal/losses/softplus.py", 5)
    write(tmp_path, "bifocal/losses/deep/triplet.py", 2)
    write(tmp_path, "pipelines/main.py", 5)
    table, error = SIZE["report"](tmp_path, 12)
    rows = {row.split()[0]: row.split()[1:] for row in table.splitlines() if row}
    assert rows["bifocal"] == ["8", "3", "2"]
    assert rows["bifocal/losses"] == ["7", "2", "4"]
    assert rows["bifocal/*.py"] == ["1", "1", "1"]
    assert rows["total"] == ["13", "4", "4"]
    assert error == "13 lines of Python, 1 over the budget: delete code"
    assert SIZE["report"](tmp_path, 13)[1] is None


def test_files_and_folders_have_the_size_of_an_idea() -> None:
    files = [file for layer in SIZE["LAYERS"] for file in (ROOT / layer).rglob("*.py")]
    long = {
        str(file.relative_to(ROOT)) for file in files if len(file.read_bytes().splitlines()) > 400
    }
    assert not long, "split these files: an idea fits into 400 lines"
    folders = Counter(
        file.parent.relative_to(ROOT).as_posix() for file in files if file.name != "__init__.py"
    )
    crowded = {folder: count for folder, count in folders.items() if count > 17}
    assert not crowded, "group these modules into folders: at most 17 in one"
