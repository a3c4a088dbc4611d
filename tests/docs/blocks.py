"""Commands and marked code blocks of the Markdown files.

A fenced block after the comment ``<!-- test: WORLD -->`` is run by ``make docs-test``, in the
folder that ``tests/docs/worlds.py`` prepares for WORLD. A block after ``<!-- file: NAME -->`` is
the content of a file there.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"^<!-- (test|file): (\S+) -->$")
FENCE = re.compile(r"^(\s*)```(\w*)$")
PROGRAMS = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?"
    r"(?:bifocal|chgrp|containers/[a-z.]+|curl|deploy/[a-z/0-9.]+|dvc|export|git|kubectl|make|mlflow|pip|podman|pre-commit|promtool|pytest|python3?"
    r"|torchrun|uv|xdg-open)(?: |$)"
)
"""Beginning of a command in a block without a language."""


class Block(NamedTuple):
    """Fenced block.

    Attributes:
        line: number of its first line, from 1.
        language: info string.
        mark: "test" or "file" of its comment, or empty; ``name`` is the world, or the name of the
            file.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    name: str = ""


def pages() -> list[str]:
    """Return the Markdown files of the repository without the records, which name deleted
    commands."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return sorted(
        name for name in names if (ROOT / name).is_file() and not name.startswith("docs/records/")
    )


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page: fenced ones, and indented ones as blocks without a language."""
    lines, mark, number = (ROOT / page).read_text().splitlines(), ("", ""), 0
    while number < len(lines):
        line, first = lines[number], number
        if found := MARK.match(line):
            mark = (found[1], found[2])
        elif fence := FENCE.match(line):
            end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == "```")
            text = "\n".join(row.removeprefix(fence[1]) for row in lines[number + 1 : end])
            yield Block(page, first + 2, fence[2], text + "\n", *mark)
            mark, number = ("", ""), end
        elif line.startswith("    ") and (not first or not lines[first - 1].strip()):
            while number + 1 < len(lines) and lines[number + 1].startswith("    "):
                number += 1
            yield Block(
                page, first + 1, "", "\n".join(row[4:] for row in lines[first : number + 1]) + "\n"
            )
        number += 1


def commands(block: Block) -> Iterator[str]:
    """Yield the commands of a block, one per line, without comments; continued lines are joined."""
    if block.language not in ("bash", ""):
        return
    text = re.sub(r"'[^']*'", lambda quoted: quoted[0].replace("\n", " "), block.text)
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        command = re.split(r"\s+#", line)[0].strip()
        if (
            command
            and not line.startswith((" ", "#"))
            and (block.language == "bash" or PROGRAMS.match(command))
        ):
            yield command
