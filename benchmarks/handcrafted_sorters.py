"""What the benchmarks of sorters share: the sorters, one a row, and the line that they print."""

from torch import nn

from bifocal.sorters import (
    BifocalSorter,
    LaplaceSorter,
    NeuralSorter,
    PairwiseSorter,
    PermutahedronSorter,
    SoftSorter,
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


def line(name: str, figure: str, reference: str = "", holds: bool | None = None) -> None:
    """Print a figure beside its bar and its floor or peer; ``ok`` or ``MISS`` where there is a bar."""
    verdict = "" if holds is None else "  ok" if holds else "  MISS"
    print(f"{name:<34} {figure}{'   ' if reference else ''}{reference}{verdict}".rstrip())
