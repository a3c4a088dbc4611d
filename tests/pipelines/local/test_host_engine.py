"""Engines that run one step."""

import signal
import threading
import time
from pathlib import Path

from pipelines.local.engine import Exit, Pod
from pipelines.local.host_engine import HostEngine


def pod(folder: Path, program: str, timeout: float) -> Pod:
    return Pod(folder, "", ["python", "-c", program], {}, timeout, folder / "log.txt")


def test_host_engine_kills_a_step_and_its_children_after_the_timeout(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid)); print('began', flush=True)\n"
        "time.sleep(60)"
    )
    assert HostEngine({}).run(pod(tmp_path, program, 4.0)) == Exit(-signal.SIGKILL, "deadline")
    assert (tmp_path / "log.txt").read_text() == "began\n"
    # The kernel may need a moment to end the child; alone it would sleep for a minute.
    state = Path("/proc") / (tmp_path / "child").read_text() / "stat"
    deadline = time.monotonic() + 20.0
    while is_running(state):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.01)


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


def is_running(state: Path) -> bool:
    try:
        return state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
