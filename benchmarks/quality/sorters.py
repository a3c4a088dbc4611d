"""How far are the ranks of each sorter from the true ones, on the vectors of table 5.1?

    python -m benchmarks.quality.sorters [FOLDER ...]

L1 error of ranks divided by n, on 10,000 held-out vectors of length 100. Each FOLDER is a sorter that pretrain_sorter
has trained: what a budget reaches, see components/pretrain_sorter/README.md.
"""

import sys
from pathlib import Path

import torch

from benchmarks.handcrafted_sorters import HANDCRAFTED, OURS, line
from bifocal.pretraining.sorter import held_out_scores, rank_l1
from bifocal.sorters import load_sorter

BAR = 0.0005
THESIS = {"PairwiseSorter": 0.0350, "CNNSorter": 0.0120, "LSTMSorter": 0.0033}


def main() -> None:
    torch.set_num_threads(1)
    sorters = dict(HANDCRAFTED)
    for folder in sys.argv[1:]:
        sorter = load_sorter(Path(folder))
        sorters[type(sorter).__name__] = sorter
    for name, sorter in sorters.items():
        error = rank_l1(sorter, held_out_scores(getattr(sorter, "length", 100), seed=0))
        reference = f"table 5.1: {THESIS[name]:.4f}" if name in THESIS else ""
        if name == OURS:
            line(name, f"{error:.4f}", f"bar at most {BAR}, table 5.1 at best 0.0033", error <= BAR)
        else:
            line(name, f"{error:.4f}", reference)


if __name__ == "__main__":
    main()
