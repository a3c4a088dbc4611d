"""Stand-ins of downloaded weights: the same bytes in every run."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.rehearsal.stages import ROOT
from tests.rehearsal.stand_ins import STAND_INS, write_stand_in

SMALL = {name: chosen._replace(epochs=1, images=8) for name, chosen in STAND_INS.items() if name != "resnet_dense"}


def test_a_stand_in_is_the_same_bytes_in_every_run(tmp_path: Path) -> None:
    code = (
        "import sys, torch; from pathlib import Path; from tests.rehearsal import stand_ins;"
        "from tests.rehearsal.test_stand_ins import SMALL; torch.set_num_threads(2); torch.manual_seed(3);"
        "[stand_ins.write_stand_in(chosen, Path(sys.argv[1]) / name) for name, chosen in SMALL.items()]"
    )
    other = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "5"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "other")], cwd=ROOT, env=other, check=True)
    state = torch.random.get_rng_state()
    threads = torch.get_num_threads()
    for name, chosen in SMALL.items():
        write_stand_in(chosen, tmp_path / name)
        assert (tmp_path / name).read_bytes() == (tmp_path / "other" / name).read_bytes(), name
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
