"""Engines that run one step."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipelines.local.engine import Exit, HostEngine, Pod


def pod(folder: Path, program: str, timeout: float) -> Pod:
    return Pod(folder, (), "", ["python", "-ISc", program], {}, timeout, folder / "log.txt")


def test_host_engine_kills_a_step_and_its_children_after_the_timeout(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid)); print('began', "
        "flush=True)\n"
        "time.sleep(60)"
    )
    assert HostEngine({}).run(pod(tmp_path, program, 2.0)) == Exit(-signal.SIGKILL, late=True)
    assert (tmp_path / "log.txt").read_text() == "began\n"
    check_end((tmp_path / "child").read_text())


STEP = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(60)
"""
RUN = """
import sys
from pathlib import Path
from pipelines.local.engine import Pod
from pipelines.local.engine import HostEngine

HostEngine({}).run(Pod(Path(), (), "", ["python", "-ISc", sys.argv[1]], {}, 60.0, Path("log.txt")))
"""


def test_step_and_its_children_end_with_a_killed_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, STEP]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root)}) as run:
        log = tmp_path / "log.txt"
        while not log.is_file() or not log.read_text().endswith("\n"):
            assert run.poll() is None
            time.sleep(0.01)
        run.kill()
    for process_id in log.read_text().split():
        check_end(process_id)


@pytest.mark.parametrize(
    ("program", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_exit_code_is_that_of_the_step(program: str, code: int, tmp_path: Path) -> None:
    assert HostEngine({}).run(pod(tmp_path, program, 60.0)) == Exit(code)


def test_host_engine_stop_kills_the_running_step(tmp_path: Path) -> None:
    engine = HostEngine({})
    log = tmp_path / "log.txt"

    def stop_after_the_first_output() -> None:
        while not log.is_file() or not log.read_text():
            time.sleep(0.01)
        engine.stop()

    threading.Thread(target=stop_after_the_first_output, daemon=True).start()
    program = "import time; print('began', flush=True); time.sleep(60)"
    assert engine.run(pod(tmp_path, program, 90.0)) == Exit(-signal.SIGKILL)
    engine.stop()  # with no running step


def check_end(process_id: str) -> None:
    """Wait for the end of a killed process: the kernel may need a moment; not killed, it would
    sleep for a minute."""
    state = Path("/proc") / process_id / "stat"
    deadline = time.monotonic() + 20.0
    while is_running(state):
        assert time.monotonic() < deadline, "the process outlived its parent"
        time.sleep(0.01)


def is_running(state: Path) -> bool:
    try:
        return state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
