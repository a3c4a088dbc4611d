"""Locks where the system has none."""

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_POSIX = """
import os, sys
from pathlib import Path

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("nice", "fork", "register_at_fork"):
    delattr(os, name)

import bifocal.search, bifocal.serving.service.app, runtime.stage
from bifocal.durable import append_line, change, hold, new_folder, release
from pipelines.app.serve import raise_file_limit, serve_command

raise_file_limit()
folder = Path(sys.argv[1])
with new_folder(folder / "made") as partial:
    (partial / "file").write_text("one")
hold(folder / "made")
with change(folder) as changed:
    changed.write(folder / "made" / "file", lambda path: path.write_text("two"))
release(folder / "made")
append_line(folder / "lines", "three")
"""


@pytest.mark.slow
def test_changes_need_no_module_that_windows_lacks(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_POSIX, str(tmp_path)], check=True)
    assert (tmp_path / "made" / "file").read_text() == "two"
    assert (tmp_path / "lines").read_text() == "three\n"
    assert {path.name for path in tmp_path.iterdir()} == {"made", "lines"}
