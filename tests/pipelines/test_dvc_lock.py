"""A table of DVC's locks that a kill left half-written, with the real DVC."""

import subprocess
from pathlib import Path

import pytest

from pipelines.dvc import TABLE, remove_damaged_table


def dvc(folder: Path, *arguments: str) -> str:
    """Run DVC, and return its output."""
    done = subprocess.run(["dvc", *arguments], cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_half_written_table_is_removed(tmp_path: Path) -> None:
    dvc(tmp_path, "init", "--no-scm", "--quiet")
    (tmp_path / "dvc.yaml").write_text("stages: {one: {cmd: echo one > one, outs: [one]}}\n")
    table = tmp_path / TABLE
    for damaged in ("", '{"/one": {"write'):
        table.write_text(damaged)
        assert "JSON structure is corrupted" in dvc(tmp_path, "repro", "--force")
        assert remove_damaged_table(tmp_path)
        assert "Running stage 'one'" in dvc(tmp_path, "repro", "--force")
        assert not remove_damaged_table(tmp_path)
        assert table.is_file()


@pytest.mark.parametrize("content", [None, "{}", '{"/one": {"write": {"pid": 1, "cmd": "dvc"}}}'])
def test_a_table_that_can_be_read_is_kept(tmp_path: Path, content: str | None) -> None:
    table = tmp_path / TABLE
    table.parent.mkdir(parents=True)
    if content is not None:
        table.write_text(content)
    assert not remove_damaged_table(tmp_path)
    assert (table.read_text() if table.is_file() else None) == content
