"""The tests of the library on other machines: less of the processor, other threads, zones, locales,
users, paths and versions of Python.

    make test-abroad                      all settings, about three minutes each
    make test-abroad ONLY=umask           one of them
    python -m tests.rehearsals.abroad --only umask tests/bifocal/losses

pytest's output of each setting is in runs/abroad.
"""

import os
import random
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import click
import pytest

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "runs" / "abroad"
LIBRARY = ("tests/bifocal", "tests/contracts", "tests/test_recipe_models.py")
PLUGIN = "tests.rehearsals.abroad"
ORDER = "BIFOCAL_TEST_ORDER"
"""Variable with the seed of the order of the tests."""
SMALLEST = "SSE41"
"""Smallest instruction set that oneDNN accepts."""
NEWEST = "3.13"
"""Newest Python that the packages allow."""


@dataclass(frozen=True)
class Setting:
    """What differs from this machine.

    Attributes:
        variables: of the environment; None removes one.
        folder: name of the checkout; "" runs in this one.
        user: of the processes; "" for this one.
        python: version; "" for this one.
    """

    name: str
    variables: Mapping[str, str | None] = field(default_factory=dict)
    umask: int = -1
    folder: str = ""
    user: str = ""
    python: str = ""


PLAIN = Setting("plain")
SETTINGS = (
    PLAIN,
    Setting("without vectors", {"ATEN_CPU_CAPABILITY": "default"}),
    Setting("avx2", {"ATEN_CPU_CAPABILITY": "avx2"}),
    Setting("onednn", {"ONEDNN_MAX_CPU_ISA": SMALLEST, "DNNL_MAX_CPU_ISA": SMALLEST}),
    Setting("one thread", {"OMP_NUM_THREADS": "1"}),
    Setting("two threads", {"OMP_NUM_THREADS": "2"}),
    Setting("hashes and order", {"PYTHONHASHSEED": "12345", ORDER: "1"}),
    Setting("zone", {"TZ": "Asia/Kolkata"}),
    Setting("turkish", {"LC_ALL": "tr_TR.UTF-8"}),
    Setting("locale C", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    Setting("umask", umask=0o077),
    Setting("user", folder="checkout", user="nobody"),
    Setting("path", folder="Größe und Maß"),
    Setting("home", {"HOME": "/dev/null/home", "XDG_CACHE_HOME": None}),
    Setting("python", folder="checkout", python=NEWEST),
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the files, and the tests of each file: ``python -m pytest -p`` loads this module."""
    if ORDER in os.environ:
        seed = random.Random(int(os.environ[ORDER]))
        files = {item.path: seed.random() for item in items}
        items.sort(key=lambda item: (files[item.path], seed.random()))


@contextmanager
def machine(setting: Setting) -> Iterator[tuple[Path, Path, dict[str, str]]]:
    """Yield the folder to test in, its Python, and the environment."""
    variables: dict[str, str | None] = {**os.environ, "CI": None, "PYTHONPATH": "."}
    variables |= setting.variables
    folder, python = ROOT, Path(sys.executable)
    with TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        if locale := variables.get("LC_ALL", "C"):
            variables["LOCPATH"] = parent if "." in locale else None
            name, _, charset = locale.partition(".")
            if charset:
                run("localedef", "-i", name, "-f", charset, f"{parent}/{locale}")
        if setting.folder:
            folder = Path(parent, setting.folder)
            run("git", "clone", "--quiet", ROOT, folder)
        if setting.python:
            python = Path(parent, "venv", "bin", "python")
            run("uv", "venv", "--quiet", "--python", setting.python, python.parents[1])
            pins = ROOT / "requirements" / "dev.txt"
            run("uv", "pip", "install", "--quiet", "--python", python, "--requirement", pins)
        if setting.user:
            run("chown", "-R", setting.user, folder)
            # The Python of this environment may be in root's home.
            python = Path(f"/usr/bin/python3.{sys.version_info.minor}")
            variables["PYTHONPATH"] = os.pathsep.join([".", sysconfig.get_path("purelib")])
            variables |= {"HOME": str(folder), "XDG_CACHE_HOME": None}
        environment = {name: value for name, value in variables.items() if value is not None}
        yield folder, python, environment


def run(*command: object) -> None:
    """Run a command; raise ``OSError`` with its message if it fails."""
    arguments = list(map(str, command))
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(arguments)}: {done.stderr.strip()[-500:]}")


def outcomes(setting: Setting, tests: Sequence[str], workers: int) -> dict[str, str]:
    """Run the tests in a setting; return "passed", "failed" or "skipped" by test. ``OSError`` if no
    test ran."""
    with machine(setting) as (folder, python, environment), TemporaryDirectory() as results:
        Path(results).chmod(0o777)
        report, log = Path(results, "junit.xml"), LOGS / f"{setting.name}.log"
        LOGS.mkdir(parents=True, exist_ok=True)
        command = [python, "-m", "pytest", "-p", PLUGIN, f"--junitxml={report}"]
        command += [f"--numprocesses={workers}", "--dist=loadfile", "-m", "not slow", *tests]
        with log.open("wb") as file:
            subprocess.run(
                command,
                cwd=folder,
                env=environment,
                umask=setting.umask,
                user=setting.user or None,
                group="nogroup" if setting.user else None,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        cases = ElementTree.parse(report).iter("testcase") if report.is_file() else ()
        found = {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}
        if not found:
            raise OSError(log.read_text(errors="replace")[-2000:])
        return found


def _outcome(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    return (
        "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
    )


def differences(plain: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return a line for each test that failed, or ended otherwise than in the plain setting."""
    return [
        f"{test}: {found.get(test, 'not run')}"
        for test in sorted({*plain, *found})
        if found.get(test) == "failed" or (plain and found.get(test) != plain.get(test))
    ]


@click.command()
@click.option("--only", multiple=True, type=click.Choice([setting.name for setting in SETTINGS]))
@click.option("--workers", default=2, help="Processes of pytest.")
@click.argument("tests", nargs=-1)
def main(only: tuple[str, ...], workers: int, tests: tuple[str, ...]) -> None:
    """Run TESTS, by default the tests of the library, in each setting, and name what differs."""
    plain, bad = dict[str, str](), 0
    for setting in SETTINGS:
        if (only and setting.name not in only) or (setting.user and os.getuid()):
            continue  # a user who is not root has the plain setting for the setting "user"
        try:
            found = outcomes(setting, tests or LIBRARY, workers)
        except OSError as error:
            click.echo(f"{setting.name}: not run: {error}")
            bad += 1
            continue
        lines = differences(plain, found)
        plain = found if setting is PLAIN else plain
        bad += bool(lines)
        passed = sum(outcome == "passed" for outcome in found.values())
        click.echo(f"{setting.name}: {passed} of {len(found)} passed, {len(lines)} differ")
        click.echo("".join(f"  {line}\n" for line in lines), nl=False)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
