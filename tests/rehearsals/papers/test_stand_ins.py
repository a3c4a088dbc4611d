"""Stand-ins of downloaded weights: the same bytes in every run."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.rehearsals.papers.stand_ins import write_small

ROOT = Path(__file__).parents[3]
ELSEWHERE = """
import sys, torch
from pathlib import Path
from tests.rehearsals.papers.stand_ins import write_small
torch.set_num_threads(2)
torch.manual_seed(3)
write_small(Path(sys.argv[1]))
"""


def test_a_stand_in_is_the_same_bytes_in_every_run(tmp_path: Path) -> None:
    other = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "5"}
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "other")], cwd=ROOT, env=other, check=True
    )
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    write_small(tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == (tmp_path / "other").read_bytes()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
