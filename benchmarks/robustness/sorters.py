"""Are sorters exact on scores of another scale, location or shape?

    python -m benchmarks run robustness.sorters [FOLDER ...]

Scores are scaled, shifted, heavy-tailed, clustered or tied, n = 2 to 1,000. The error is the L1
error of ranks divided by n. A gradient is dead if a row of scores has no gradient at all. Each
FOLDER is a sorter of the stage pretrain_sorter; it sees vectors of its own length.
"""

import sys
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.common import Report
from benchmarks.handcrafted_sorters import OURS, sorters
from bifocal.sorters import exact_ranks

MAX_ERROR = 0.0005
LENGTHS = (2, 10, 100, 1000)


def score_sets(n: int) -> Mapping[str, Tensor]:
    """Return 200 rows of n scores for each kind of shift."""
    generator = torch.Generator().manual_seed(0)
    base = torch.rand(200, n, generator=generator) * 2 - 1
    return {
        "x 0.01": 0.01 * base,
        "x 100": 100 * base,
        "+ 10": base + 10,
        "heavy": torch.tan(1.5 * base) ** 3,
        "clusters": base.sign() + 0.001 * torch.rand(200, n, generator=generator),
        "ties": (4 * base).round(),
    }


class Cell(NamedTuple):
    """L1 error, whether all values are finite, and whether every row has a gradient."""

    error: float
    finite: bool
    has_gradient: bool

    def __str__(self) -> str:
        return (
            "NaN"
            if not self.finite
            else f"{self.error:.4f}" + ("" if self.has_gradient else " dead")
        )


def evaluate(sorter: nn.Module, scores: Tensor) -> Cell:
    """Measure a sorter on one set of scores."""
    leaf = scores.clone().requires_grad_()
    ranks = sorter(leaf)
    weights = torch.randn(ranks.shape, generator=torch.Generator().manual_seed(1))
    (ranks * weights).sum().backward()
    assert leaf.grad is not None
    error = float((ranks.detach() - exact_ranks(scores)).abs().mean()) / scores.shape[1]
    finite = bool(ranks.isfinite().all() and leaf.grad.isfinite().all())
    return Cell(error, finite, bool((leaf.grad != 0).any(dim=1).all()))


def main() -> None:
    """Report the largest error and the number of failures of each sorter."""
    torch.set_num_threads(1)
    report = Report("robustness.sorters")
    for name, sorter in sorters(sys.argv[1:]).items():
        cells: list[Cell] = []
        for n in LENGTHS:
            if getattr(sorter, "length", n) == n:
                row = {kind: evaluate(sorter, scores) for kind, scores in score_sets(n).items()}
                print(
                    f"  {name}, n = {n}: "
                    + ", ".join(f"{kind} {cell}" for kind, cell in row.items())
                )
                cells += row.values()
        is_ours = name == OURS
        errors = [cell.error for cell in cells if cell.finite]
        report.add(
            f"{name}: largest error",
            max(errors, default=1.0),
            at_most=MAX_ERROR if is_ours else None,
        )
        failures = sum(not (cell.finite and cell.has_gradient) for cell in cells)
        reference = f"of {len(cells)}"
        report.add(
            f"{name}: NaN or dead gradients",
            failures,
            "sets",
            at_most=0 if is_ours else None,
            reference=reference,
        )
    report.write()


if __name__ == "__main__":
    main()
