"""Process of a program or a stage: its exit, and its memory."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runtime import process

MEGABYTES = 128
PROGRAM = f"""
import resource, sys
from pathlib import Path
from tests.runtime.s3.toy_training import train
import torch

train(Path(sys.argv[1]))
torch.ones({MEGABYTES + 1} << 20, dtype=torch.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones({MEGABYTES} << 20, dtype=torch.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints the page faults of a tensor after a slightly larger one was freed."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is a function of glibc")
def test_a_tensor_of_a_stage_gets_freed_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout.splitlines()[-1]) < MEGABYTES  # 256 per MB with pages of 4 KB


@pytest.mark.parametrize("triton", [False, True])
def test_a_program_leaves_out_the_last_collection_unless_triton_is_there(
    triton: bool, tmp_path: Path
) -> None:
    (tmp_path / "triton.py").write_text("")
    program = (
        "import atexit, gc, click\nfrom runtime.process import run\n"
        f"import {'triton' if triton else 'click'}\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > "
        "10_000))\nrun(click.Command('x'), 'x')\n"
    )
    places = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    environment = os.environ | {"PYTHONPATH": places}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(not triton)]


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        (
            {"memory.peak": "2147483648", "memory.max": "3221225472"},
            "memory: peak 2.00 GiB, limit 3.00 GiB",
        ),
        (
            {"memory.current": "1073741824", "memory.max": "3221225472"},
            "memory: peak 1.00 GiB, limit 3.00 GiB",
        ),
        (
            {
                "memory/memory.max_usage_in_bytes": "1073741824",
                "memory/memory.limit_in_bytes": "2147483648",
            },
            "memory: peak 1.00 GiB, limit 2.00 GiB",
        ),
        ({"memory.peak": "2147483648", "memory.max": "max"}, None),
        ({}, None),
    ],
)
def test_memory_is_that_of_a_container_with_a_limit_else_of_process_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counters: dict[str, str], expected: str | None
) -> None:
    monkeypatch.setattr(process, "CGROUP", tmp_path)
    (tmp_path / "memory").mkdir()
    for name, value in counters.items():
        (tmp_path / name).write_text(f"{value}\n")
    file, ended = tmp_path / "termination-log", threading.Event()
    ended.set()
    process.report_memory(file, ended)
    own = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    assert file.read_text() == (expected or f"memory: peak {own:.2f} GiB, limit {machine:.2f} GiB")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is a function of glibc")
def test_freed_memory_of_tensors_of_many_sizes_is_returned() -> None:
    program = (
        "import ctypes, time, torch\nfrom runtime import process\n"
        "for option, value in process.KEEP_FREED_MEMORY.items():\n    "
        "ctypes.CDLL(None).mallopt(option, value)\n"
        "tensors = [torch.ones(1 << 20, dtype=torch.uint8) for _ in range(1000)]\nlast = "
        "tensors[-1]\ndel tensors\n"
        "before, process.RETURNED, end = process._own_memory(), 100 << 20, time.monotonic() + 60\n"
        "process.keep_freed_memory()\nprocess.keep_freed_memory()\n"
        "while process._own_memory() > before / 2 and time.monotonic() < end:\n    "
        "time.sleep(0.05)\n"
        "print(before > 1000 << 20, process._own_memory() < before / 2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]
