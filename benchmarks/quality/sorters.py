"""How far are predicted ranks from true ranks (thesis table 5.1)?

    python -m benchmarks run quality.sorters [FOLDER ...]

L1 error of ranks divided by n, on 10,000 held-out vectors of length 100. Each FOLDER is a sorter of the stage
pretrain_sorter; components/pretrain_sorter/README.md gives the error by training budget.
"""

import sys

import torch

from benchmarks.common import Report
from benchmarks.handcrafted_sorters import OURS, sorters
from bifocal.training.pretraining.sorter import held_out_scores, rank_l1

MAX_ERROR = 0.0005
THESIS = {"PairwiseSorter": 0.0350, "CNNSorter": 0.0120, "LSTMLargeSorter": 0.0033}
"""Table 5.1."""


def main() -> None:
    """Report the error of each sorter."""
    torch.set_num_threads(1)
    report = Report("quality.sorters")
    for name, sorter in sorters(sys.argv[1:]).items():
        error = rank_l1(sorter, held_out_scores(getattr(sorter, "length", 100), seed=0))
        published = min(THESIS.values()) if name == OURS else THESIS.get(name)
        reference = "" if published is None else f"table 5.1: {published:.4f}"
        report.add(name, error, at_most=MAX_ERROR if name == OURS else None, reference=reference)
    report.write()


if __name__ == "__main__":
    main()
