"""Can a model trick a sorter (thesis, section 5.6)?

    python -m benchmarks run robustness.adversary [FOLDER ...]

The scores are free parameters. Adam lowers the rank that the sorter predicts for the first score of
each row. Ranks are divided by n. The gap is the fall of the predicted rank minus the fall of the
actual rank: a sorter with a large gap rewards a model that does not rank better. Each FOLDER is a
sorter of the stage pretrain_sorter.
"""

import sys

import torch

from benchmarks.common import Report
from benchmarks.handcrafted_sorters import OURS, sorters
from benchmarks.rank_adversary import run_adversary

LENGTH = 32
MAX_GAP = 0.1


def main() -> None:
    """Report the gap of each sorter."""
    torch.set_num_threads(1)
    report = Report("robustness.adversary")
    for name, sorter in sorters(sys.argv[1:]).items():
        length = getattr(sorter, "length", LENGTH)
        before, after = run_adversary(
            sorter, length=length, rows=128, steps=400, learning_rate=0.02, seed=0
        )
        gap = (before.predicted - after.predicted) - (before.actual - after.actual)
        predicted = f"predicted {before.predicted:.3f} to {after.predicted:.3f}"
        reference = f"{predicted}, actual {before.actual:.3f} to {after.actual:.3f}"
        report.add(
            f"{name}: gap", gap, at_most=MAX_GAP if name == OURS else None, reference=reference
        )
    report.write()


if __name__ == "__main__":
    main()
