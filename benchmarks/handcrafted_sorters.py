"""Sorters that the benchmarks of sorters compare."""

from collections.abc import Iterable
from pathlib import Path

from torch import nn

from bifocal.sorters import (
    ExactRankSorter,
    PairwiseSorter,
    load_sorter,
)

OURS = "ExactRankSorter"
HANDCRAFTED: dict[str, nn.Module] = {
    OURS: ExactRankSorter(),
    "ExactRankSorter, soft": ExactRankSorter(exact=False),
    "PairwiseSorter": PairwiseSorter(),
    "PairwiseSorter, adaptive": PairwiseSorter(adaptive=True),
}
QUADRATIC = ("PairwiseSorter", "PairwiseSorter, adaptive")
"""Sorters whose memory grows with n squared."""


def sorters(folders: Iterable[str]) -> dict[str, nn.Module]:
    """Return the handcrafted sorters, and the learned ones in ``folders`` by their class names."""
    learned = [load_sorter(Path(folder)) for folder in folders]
    return HANDCRAFTED | {type(sorter).__name__: sorter for sorter in learned}
