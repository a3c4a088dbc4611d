"""Large tensors of a stage lie in huge pages, in a process of its own: PyTorch reads the setting once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.stage import HUGE_PAGES

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MEGABYTES = 128
PROGRAM = f"""
import sys
from pathlib import Path
from tests.runtime.s3.toy_training import train
import torch

train(Path(sys.argv[1]))
tensor = torch.ones({MEGABYTES} << 20, dtype=torch.uint8)
middle = tensor.data_ptr() + ({MEGABYTES} << 19)
inside = False
for line in Path("/proc/self/smaps").read_text().splitlines():
    first, last = line.split()[0], line.split()[1:]
    if "-" in first:
        start, end = (int(address, 16) for address in first.split("-"))
        inside = start <= middle < end
    elif inside and first == "VmFlags:":
        print(*last)
"""
"""Prints the flags of the memory of a tensor."""


@pytest.mark.skipif(not SETTING.is_file() or "[never]" in SETTING.read_text(), reason="the system has no huge pages")
def test_stage_asks_for_huge_pages(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != HUGE_PAGES}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    # Whether the system has huge pages left depends on the memory of other processes.
    assert "hg" in done.stdout.splitlines()[-1].split()
