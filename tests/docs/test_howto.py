"""The how-tos as their readers type them: each part in its file with its import line, its test, and
the checks of ``make check`` that concern it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.worlds import environment, run

pytestmark = pytest.mark.slow
PAGES = [ROOT / "docs" / "howto" / name for name in ("loss.md", "parts.md", "stage.md")]
FILE = re.compile(
    r"^`((?:bifocal|tests)/\S+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
TYPED = {name: text for page in PAGES for name, text in FILE.findall(page.read_text())}
PARTS = {
    name: re.findall(r"^class (\w+)", text, re.MULTILINE)[-1]
    for name, text in TYPED.items()
    if name.startswith("bifocal/")
}
PACKAGES = re.findall(r"\|`(bifocal/[^`]+)`\|", (ROOT / "docs" / "howto" / "index.md").read_text())


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout with the parts of all pages."""
    folder = tmp_path_factory.mktemp("howto") / "clone"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    copy = ["cp", "--parents", "--no-dereference", "--target-directory", str(folder)]
    folder.mkdir()
    present = [name for name in files.stdout.decode().split("\0") if (ROOT / name).is_file()]
    subprocess.run([*copy, *present], cwd=ROOT, check=True)
    for name, text in TYPED.items():
        (folder / name).write_text(text)
    for name, part in PARTS.items():
        (package,) = [package for package in PACKAGES if name.startswith(f"{package}/")]
        with (folder / package / "__init__.py").open("a") as file:
            file.write(f"from {name.removesuffix('.py').replace('/', '.')} import {part}\n")
    run("bash", "git init --quiet && git add --all && ruff check --fix --quiet", folder)
    run("bash", "python -m pipelines render", folder)
    return folder


def test_each_kind_of_part_has_a_page() -> None:
    shown = {
        package for package in PACKAGES if any(name.startswith(f"{package}/") for name in PARTS)
    }
    assert shown == set(PACKAGES) - {"bifocal/training/batches"}


@pytest.mark.parametrize(
    "name", [name for name in TYPED if re.search("Example:|def test_", TYPED[name])]
)
def test_a_typed_file_runs(typed: Path, name: str) -> None:
    run("bash", f"pytest --numprocesses 0 {name}", typed)


def test_typed_parts_keep_the_promises_of_their_kind(typed: Path) -> None:
    names = " or ".join(PARTS.values())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--numprocesses=0", "tests/contracts", "-k", names, "-rA"],
        cwd=typed,
        env=environment(os.environ, typed),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert all(f"[{name}" in done.stdout for name in PARTS.values()), done.stdout[-3000:]


@pytest.mark.parametrize(
    "check",
    [
        "ruff check .",
        "ruff format --check .",
        "lint-imports",
        "python -m pipelines render --check",
        f"codespell {' '.join(TYPED)}",
        f"mypy --follow-imports silent {' '.join(PARTS)}",
    ],
)
def test_the_checks_pass(typed: Path, check: str) -> None:
    run("bash", check, typed)
