"""Which sorter lets a model lower the loss without ranking better (thesis 5.6)?

    python -m benchmarks.robustness.adversary [FOLDER ...]

All scores are free, and Adam lowers the rank that the sorter gives to the first of every row. Mean rank divided by n
before -> after, as the sorter says and as it is. Each FOLDER is a sorter that pretrain_sorter has trained.
"""

import sys
from pathlib import Path

import torch

from benchmarks.handcrafted_sorters import HANDCRAFTED, OURS, line
from bifocal.sorters import load_sorter
from bifocal.sorters.adversary import run_adversary

LENGTH = 32
TRICK = 0.1


def main() -> None:
    torch.set_num_threads(1)
    sorters = dict(HANDCRAFTED)
    for folder in sys.argv[1:]:
        sorter = load_sorter(Path(folder))
        sorters[type(sorter).__name__] = sorter
    print(f"tricked: what the sorter says has fallen by {TRICK:g} more than the truth; bar of {OURS}: honest")
    for name, sorter in sorters.items():
        length = getattr(sorter, "length", LENGTH)
        before, after = run_adversary(sorter, length=length, rows=128, steps=400, learning_rate=0.02, seed=0)
        tricked = (before.said - after.said) > (before.true - after.true) + TRICK
        figure = f"said {before.said:6.3f} -> {after.said:6.3f}  true {before.true:6.3f} -> {after.true:6.3f}"
        line(name, figure, "tricked" if tricked else "honest", None if name != OURS else not tricked)


if __name__ == "__main__":
    main()
