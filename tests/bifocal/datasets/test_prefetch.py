"""Threads of a container: its limits, not the machine's processors, in files of a folder."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets import prefetch
from bifocal.datasets.prefetch import BYTES_PER_THREAD, usable_threads

LIMITS = st.none() | st.integers(1, 10**12)


@given(quota=LIMITS, memory=LIMITS, version=st.sampled_from([1, 2]), processors=st.integers(1, 256))
def test_threads_follow_processors_quota_and_memory(
    quota: int | None, memory: int | None, version: int, processors: int
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
        patch.setattr(prefetch, "CGROUP", Path(folder))
        patch.setattr("os.sched_getaffinity", lambda process: range(processors))
        found = usable_threads()
    expected = [processors]
    expected += [math.ceil(quota / 100_000)] if quota else []
    expected += [memory // BYTES_PER_THREAD] if memory else []
    assert found == max(1, min(expected))
