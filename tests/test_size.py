"""``make size``: tokens and files by room, and the bars; shapes of files and folders."""

import runpy
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SIZE = runpy.run_path(str(ROOT / ".ci" / "size.py"))


def write(root: Path, path: str, statements: int) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("x = 1\n" * statements)


def test_table_counts_rooms_and_a_total(tmp_path: Path) -> None:
    write(tmp_path, "bifocal/__init__.py", 1)
    write(tmp_path, "bifocal/losses/softplus.py", 5)
    write(tmp_path, "bifocal/losses/deep/triplet.py", 2)
    write(tmp_path, "pipelines/main.py", 5)
    table, total = SIZE["report"](tmp_path)
    rows = {row.split()[0]: row.split()[1:] for row in table.splitlines() if row}
    assert rows["bifocal"] == ["24", "3", "6"]
    assert rows["bifocal/losses"] == ["21", "2", "10"]
    assert rows["bifocal/*.py"] == ["3", "1", "3"]
    assert rows["total"] == ["39", "4", "10"]
    assert total == 39


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"""Module."""\n\n\ndef f(a, b=1):  # why\n    """Do."""\n    return f"{a} {b}"\n', 12),
        ("x = (\n    1,\n)\n", 6),
        ('x = "a"\n"""Attribute."""\n', 3),
    ],
)
def test_layout_and_prose_cost_no_token(text: str, count: int) -> None:
    assert SIZE["tokens"](text) == count


def test_the_bar_has_one_percent_of_slack() -> None:
    assert SIZE["excess"](1_010, 1_000, "tokens", "delete code") is None
    assert SIZE["excess"](1_011, 1_000, "tokens", "delete code") == (
        "1,011 tokens, at most 1,010: delete code"
    )


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
