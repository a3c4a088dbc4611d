"""Faults at the system calls of operations: the old state or the new one, and every acknowledged
change is there.

The long form has a point at every call. Finished kinds of faults are kept in runs/faults/matrix,
and a second start goes on with the others: delete the folder after a change of the code. The folder
of the trials is fastest in memory, by TMPDIR.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rehearsals.faults.checkout import ROOT
from tests.rehearsals.faults.form import LONG
from tests.rehearsals.faults.matrix.operations import PLACES
from tests.rehearsals.faults.rows import Record, record

SHIM = Path(__file__).parent / "matrix" / "shim.c"
HOME = ROOT / "runs" / "faults" / "matrix"
SHORT = ("commit of two artifacts", "`DELETE /api/v1/item`")
MOST = int(os.environ.get("BIFOCAL_TEST_POINTS", "1000")) if LONG else 4
"""Points of each kind; in the long form, more than any operation has calls."""
FAULT = (
    "system calls that change a file: `SIGKILL` before each, disk full from each write on or "
    "at it, two at once"
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("the shim needs Linux and a C compiler")
    file = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", file, SHIM, "-ldl"], check=True)
    return file


def run_trials(operation: str, shim: Path, folder: Path, kept: Path) -> dict[str, int]:
    """Return the points of an operation by kind of fault, without the kinds that a previous run has
    kept."""
    command = [
        sys.executable,
        "-m",
        "tests.rehearsals.faults.matrix",
        str(folder),
        str(MOST),
        operation,
        str(kept),
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    points: dict[str, int] = json.loads(kept.read_text())
    return points


@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("operation", PLACES if LONG else SHORT)
def test_operation_with_faults_at_its_system_calls(
    operation: str, shim: Path, tmp_path: Path, record_property: Record
) -> None:
    home = HOME if LONG else tmp_path
    home.mkdir(parents=True, exist_ok=True)
    kept = home / f"{operation.strip('`').replace(' ', '-').replace('/', '-')}.json"
    points = run_trials(operation, shim, tmp_path, kept)
    counts = ", ".join(f"{kind} {count}" for kind, count in points.items())
    outcome = (
        "the old state or the new one, acknowledged changes are there, the next command "
        f"succeeds ({counts})"
    )
    record(record_property, FAULT, operation, outcome, trials=sum(points.values()))
