"""A stage keeps freed memory, in a process of its own: the settings of malloc hold for the whole process."""

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is a function of glibc")
def test_a_tensor_of_a_stage_gets_freed_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) < MEGABYTES  # 256 per MB with pages of 4 KB
