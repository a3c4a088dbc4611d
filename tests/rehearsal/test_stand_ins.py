"""Stand-ins of downloaded weights: the same bytes in every run."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.rehearsal.stand_ins import STAND_INS, write_stand_in

ROOT = Path(__file__).parents[2]
ELSEWHERE = """
import sys, torch
from pathlib import Path
from tests.rehearsal.test_stand_ins import write_small
torch.set_num_threads(2)
torch.manual_seed(3)
write_small(Path(sys.argv[1]))
"""


def write_small(path: Path) -> None:
    """Write the smallest stand-in."""
    write_stand_in(STAND_INS["resnet"]._replace(epochs=1, size=48, stages=(2, 3), images=16), path)


def test_a_stand_in_is_the_same_bytes_in_every_run(tmp_path: Path) -> None:
    other = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "5"}
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(tmp_path / "other")], cwd=ROOT, env=other, check=True)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    write_small(tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == (tmp_path / "other").read_bytes()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
