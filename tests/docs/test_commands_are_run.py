"""Every command of the Markdown files is run by a test or a script, or ``commands.yaml`` says why
not."""

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import ROOT, Block, blocks, commands, pages
from tests.docs.worlds import WORLDS

ENTRIES = yaml.safe_load((Path(__file__).parent / "commands.yaml").read_text())
COMMANDS = {
    command: f"{page}:{block.line}"
    for page in pages()
    for block in blocks(page)
    if not block.mark
    for command in commands(block)
}


def entry(command: str) -> int | None:
    """Return the number of the entry of a command."""
    return next(
        (n for n, entry in enumerate(ENTRIES) if re.fullmatch(entry["command"], command)), None
    )


def test_each_command_is_listed() -> None:
    unlisted = [
        f"{place}: {command}" for command, place in COMMANDS.items() if entry(command) is None
    ]
    assert not unlisted, "say in tests/docs/commands.yaml who runs them, or mark their block"


def test_each_entry_has_a_command() -> None:
    used = {entry(command) for command in COMMANDS}
    assert [entry["command"] for n, entry in enumerate(ENTRIES) if n not in used] == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["command"][:40])
def test_what_runs_a_command_exists(entry: dict[str, object]) -> None:
    assert ("run_by" in entry) != ("not_run" in entry)
    runs = entry.get("run_by", [])
    assert isinstance(runs, list)
    for run in runs:
        path, _, name = run.partition("::")
        assert (ROOT / path).exists(), f"{path} does not exist"
        assert not name or f"def {name}(" in (ROOT / path).read_text(), f"{path} has no {name}"


def test_marks_name_worlds_and_stand_before_a_block() -> None:
    marked = [block for page in pages() for block in blocks(page) if block.mark]
    assert all(
        block.name in WORLDS and block.language in ("bash", "python")
        for block in marked
        if block.mark == "test"
    )
    written = sum(
        len(re.findall(r"^<!-- (?:test|file): ", (ROOT / page).read_text(), re.MULTILINE))
        for page in pages()
    )
    assert len(marked) == written


def test_commands_of_fenced_and_indented_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n    make a    # comment\n    no command\n\n```bash\nx \\\n  --y\n```\n\n"
        "<!-- test: photos -->\n```bash\nz\n```\n\n1. item\n\n    ```bash\n    in an item\n    "
        "```\n"
    )
    found = list(blocks(str(page)))
    assert [list(commands(block)) for block in found] == [
        ["make a"],
        ["x --y"],
        ["z"],
        ["in an item"],
    ]
    assert found[2] == Block(str(page), 13, "bash", "z\n", "test", "photos")
