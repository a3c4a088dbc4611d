"""Sorters that the benchmarks of sorters compare."""

from collections.abc import Iterable
from pathlib import Path

from torch import nn

from bifocal.sorters import (
    BifocalSorter,
    LaplaceSorter,
    NeuralSorter,
    PairwiseSorter,
    PermutahedronSorter,
    SoftSorter,
    load_sorter,
)

OURS = "BifocalSorter"
HANDCRAFTED: dict[str, nn.Module] = {
    OURS: BifocalSorter(),
    "BifocalSorter, soft": BifocalSorter(exact=False),
    "LaplaceSorter": LaplaceSorter(),
    "PermutahedronSorter": PermutahedronSorter(),
    "PermutahedronSorter, 0.01": PermutahedronSorter(0.01),
    "PairwiseSorter": PairwiseSorter(),
    "PairwiseSorter, adaptive": PairwiseSorter(adaptive=True),
    "NeuralSorter": NeuralSorter(),
    "SoftSorter": SoftSorter(),
}
QUADRATIC = ("PairwiseSorter", "PairwiseSorter, adaptive", "NeuralSorter", "SoftSorter")
"""Sorters whose memory grows with n squared."""


def sorters(folders: Iterable[str]) -> dict[str, nn.Module]:
    """Return the handcrafted sorters, and the learned ones in ``folders`` by their class names."""
    learned = [load_sorter(Path(folder)) for folder in folders]
    return HANDCRAFTED | {type(sorter).__name__: sorter for sorter in learned}
