"""A user's script, checked by mypy."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import bifocal

model = bifocal.load("runs/mine")
reveal_type(model)
reveal_type(model.search("a red star", k=3))
reveal_type(bifocal.__version__)
bifocal.load(3)
bifocal.laod("runs/mine")
model.serch("a red star")
"""


def check_types(folder: Path, python: Path | str, *options: str, path: Path | None = None) -> None:
    """Check the script in ``folder`` with mypy, with the packages of another Python, or without
    packages.

    Args:
        path: folder of the package ``bifocal``, if it is not installed for ``python``.
    """
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--no-color-output",
        "--python-executable",
    ]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")
    }
    done = subprocess.run(
        [*command, str(python), *options, f"--cache-dir={folder / 'cache'}", str(script)],
        cwd=folder,
        env=environment if path is None else environment | {"MYPYPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [
        line.partition("script.py:")[2] for line in done.stdout.splitlines() if "script.py:" in line
    ]
    assert len(lines) == 6, done.stdout + done.stderr
    revealed, wrong = (
        [line for line in lines if " note: " in line],
        [line for line in lines if " error: " in line],
    )
    for line, expected in zip(revealed, ('TrainedModel"', 'Results"', '"str"'), strict=True):
        assert expected in line.replace("builtins.", ""), line
    for line, expected in zip(wrong, ("arg-type", '"laod"', '"serch"'), strict=True):
        assert expected in line, line
