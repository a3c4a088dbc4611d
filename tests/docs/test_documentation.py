"""Commands, links and Python examples of the Markdown files: commands exist with their options,
examples run."""

import doctest
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from benchmarks.render import benchmarks
from components.__main__ import main as components
from components.catalog import configurable_components
from pipelines.app import COMMANDS, bifocal
from pipelines.commands import main as pipelines
from runtime import parameters

ROOT = Path(__file__).parents[2]
FILES = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if not name.startswith("docs/records/")  # these name deleted commands and files
)
COMMAND = re.compile(
    r"(?:\b(?:python -m (?:components|pipelines|benchmarks)|make)|(?:^|/|(?<=    ))bifocal) [^`\n]*"
)
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def commands(file: Path) -> Iterator[list[str]]:
    """Yield the words of each command, in code spans and in indented or fenced blocks."""
    fenced = False
    for line in re.sub(r" \\\n\s*", " ", file.read_text()).splitlines():
        fenced ^= line.startswith("```")
        pieces = [line] if fenced or line.startswith("    ") else re.findall(r"`([^`]*)`", line)
        for match in (match for piece in pieces for match in COMMAND.findall(piece)):
            text = re.split(r"\s#|\s&&|\s&|;|\s\||\)", match)[0]
            yield shlex.split(text if text.count("'") % 2 == 0 else text.partition("'")[0])


def check_options(group: click.Command, words: list[str]) -> None:
    """Fail unless the command and its options exist."""
    assert isinstance(group, click.Group)
    verbs = [word.rstrip(",.") for word in words if not word.startswith("-")]
    if not verbs or not verbs[0].islower():  # a placeholder, such as STAGE
        return
    with click.Context(group) as context:
        command = group.get_command(context, verbs[0])
    assert command is not None, f"no command {verbs[0]}"
    known = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0].rstrip(",.") in known | {"--help"}, (
                f"{verbs[0]} has no option {word}"
            )


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_commands_of_a_document_exist(file: Path) -> None:
    for words in commands(file):
        if words[0] == "make":
            assert words[1] in TARGETS or "=" in words[1], f"make has no target {words[1]}"
            recipes = [word.partition("=")[2] for word in words if word.startswith("RECIPE=")]
        elif words[0].endswith("bifocal"):
            check_options(bifocal, words[1:])
            recipes = []
        else:
            package, arguments = words[2], words[3:]
            if package == "benchmarks":
                assert arguments[0] in ("list", "run", "render", "NAME")
                assert arguments[0] != "run" or arguments[1] in {*benchmarks(), "NAME"}, (
                    f"no benchmark {arguments[1]}"
                )
            else:
                check_options(components if package == "components" else pipelines, arguments)
            settings = [
                word for flag, word in pairwise(arguments) if flag == "--set" and "=" in word
            ]
            recipes = [word for flag, word in pairwise(arguments) if flag == "--recipe"]
            overlays = [ROOT / recipe for recipe in recipes if (ROOT / recipe).is_file()]
            values = parameters.load(ROOT / "params.yaml", overlays, settings)
            parameters.validate(values, configurable_components().values())
        for recipe in recipes:
            on_page = recipe.isupper() or f"<!-- file: {recipe} -->" in file.read_text()
            assert (ROOT / recipe).is_file() or on_page, f"no recipe {recipe}"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_links_of_a_document_exist(file: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", file.read_text()):
        if "://" in target:
            continue
        path = file.parent / target if target else file
        assert path.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(path), f"{target} has no heading {anchor}"


def anchors(file: Path) -> set[str]:
    """Return the anchors of the headings of a Markdown file, as git servers and MkDocs name
    them."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def python_blocks() -> Iterator[tuple[str, str]]:
    for file in FILES:
        for number, block in enumerate(
            re.findall(r"```python\n(.*?)```", file.read_text(), flags=re.DOTALL)
        ):
            # Examples on the artifacts, the run or the registered model of a training cannot run
            # here; ``test_engines.py`` runs the imports into engines, ``test_howto.py`` tests.
            if file.name != "engines.md" and not any(
                word in block for word in ("artifacts", "runs/", "models:/", "def test_")
            ):
                yield f"{name_of(file)}:{number}", block


@pytest.mark.parametrize("block", [pytest.param(block, id=name) for name, block in python_blocks()])
def test_python_examples_run(block: str) -> None:
    namespace: dict[str, object] = {"__name__": "example"}
    exec(compile(block, "example", "exec"), namespace)
    for part in [
        value
        for value in namespace.values()
        if isinstance(value, type) and value.__module__ == "example"
    ]:
        for test in doctest.DocTestFinder().find(part, globs=namespace):
            assert doctest.DocTestRunner().run(test).failed == 0, test.name


@pytest.mark.parametrize(
    "command", [*pipelines.commands.values(), *components.commands.values()], ids=lambda c: c.name
)
def test_help_of_each_command_is_printed(command: click.Command) -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_the_command_bifocal_is_printed(name: str) -> None:
    result = CliRunner().invoke(bifocal, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output
