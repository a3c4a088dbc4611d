"""Stages of the small pipeline, run by their command line in this process, which saves the
imports."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from components.__main__ import main
from components.catalog import pipeline_components
from runtime import parameters
from runtime.process import run
from runtime.spec import Component
from tests.rehearsals.faults.checkout import ROOT

STAGES: dict[str, Component] = {stage.name: stage for stage in pipeline_components()}


def write_params(file: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """Write the parameters of the small pipeline, or the default ones with ``changes``."""
    if changes is None:
        values = parameters.load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])
    else:
        values = parameters.merge(parameters.load(ROOT / "params.yaml"), changes)
    file.write_text(yaml.safe_dump(values))
    return file


def run_stage(stage: str, params: Path, artifacts: Path | str, *options: str) -> tuple[int, str]:
    """Run a stage; return its exit code and its standard error."""
    command = ["components", stage, f"--params={params}", f"--artifacts={artifacts}", *options]
    errors = StringIO()
    with (
        mock.patch.object(sys, "argv", command),
        redirect_stderr(errors),
        redirect_stdout(StringIO()),
    ):
        try:
            run(main, "components")
        except SystemExit as end:
            return int(end.code or 0), errors.getvalue()
    return 0, errors.getvalue()


def link_inputs(stage: str, source: Path, target: Path) -> None:
    """Link the inputs of a stage from the folder of artifacts ``source`` to ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    for name in STAGES[stage].inputs:
        (target / name).symlink_to(source / name)


def only_error(output: str) -> str:
    """Return the error of a stage that failed: its last line. A traceback is none."""
    assert "Traceback" not in output, output
    *_, last = output.strip().splitlines()
    assert last.startswith("error: "), output
    return last


@contextmanager
def disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A tmpfs of this size, at ``folder``: a write beyond it fails with ENOSPC, as on a full
    disk."""
    folder.mkdir()
    options = f"size={kilobytes}k"
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=True
    )
    try:
        yield folder
    finally:
        # Lazily: this process may still hold a file of a failed stage open.
        subprocess.run(["umount", "--lazy", folder], check=True)


def enlarge(folder: Path) -> None:
    """Make room on a ``disk``."""
    subprocess.run(["mount", "-o", "remount,size=500m", folder], check=True)


def can_mount() -> bool:
    """Whether this process may mount a tmpfs."""
    return os.getuid() == 0 and shutil.which("mount") is not None


def kilobytes(folder: Path) -> int:
    """Size of a folder's files on a tmpfs with 4 kB pages, where folders take no page."""
    return sum(4 * -(-path.stat().st_size // 4096) for path in folder.rglob("*") if path.is_file())
