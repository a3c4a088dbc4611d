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
import resource, sys
from pathlib import Path
from tests.runtime.s3.toy_training import train
import torch

train(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones({MEGABYTES} << 20, dtype=torch.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not SETTING.is_file() or "[never]" in SETTING.read_text(), reason="the system has no huge pages")
def test_stage_asks_for_huge_pages(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != HUGE_PAGES}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    small_pages = (MEGABYTES << 20) // os.sysconf("SC_PAGE_SIZE")
    assert int(done.stdout) < small_pages / 8
