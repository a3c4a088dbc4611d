"""Processors and memory of a container: its limits, not the machine's, in files of a folder."""

import math
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal import processors
from bifocal.processors import BYTES_PER_DECODER, usable_decoders, usable_processors

LIMITS = st.none() | st.integers(1, 10**12)


@given(
    quota=LIMITS,
    memory=LIMITS,
    version=st.sampled_from([1, 2]),
    allowed=st.integers(1, 256),
)
def test_threads_follow_processors_quota_and_memory(
    quota: int | None, memory: int | None, version: int, allowed: int
) -> None:
    files = (
        {"cpu.max": f"{quota or 'max'} 100000\n", "memory.max": f"{memory or 'max'}\n"}
        if version == 2
        else {
            "cpu/cpu.cfs_quota_us": f"{quota or -1}\n",
            "cpu/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": f"{memory or 2**63 - 4096}\n",
        }
    )
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, text in files.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_text(text)
        patch.setattr(processors, "CGROUP", Path(folder))
        patch.setattr("os.sched_getaffinity", lambda process: range(allowed))
        found, decoders = usable_processors(), usable_decoders()
    expected = min([allowed] + ([math.ceil(quota / 100_000)] if quota else []))
    assert found == expected
    assert decoders == max(1, min([expected] + ([memory // BYTES_PER_DECODER] if memory else [])))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no affinity")
def test_a_stage_on_one_processor_has_one_thread_in_each_library() -> None:
    program = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "import click\nfrom runtime.process import run\n"
        "@click.command()\ndef main():\n"
        "    from bifocal.onnx.sessions import default_threads\n"
        "    import torch, faiss\n"
        "    click.echo(f'{torch.get_num_threads()} {faiss.omp_get_max_threads()} {default_threads()}')\n"
        "run(main, 'program')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 1 1\n"
