"""What do sorters say of scores that they were not made for, and does their gradient live?

    python -m benchmarks.robustness.sorters [FOLDER ...]

L1 error of ranks divided by n; "dead" where a row of scores has no gradient at all. Each FOLDER is a sorter that
pretrain_sorter has trained; it is shown vectors of its own length.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.handcrafted_sorters import HANDCRAFTED, OURS
from bifocal.sorters import exact_ranks, load_sorter

BAR = 0.0005


def shifts(n: int) -> Mapping[str, Tensor]:
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


class SearchHit(NamedTuple):
    """L1 error, whether everything is finite, and whether every row has a gradient."""

    error: float
    finite: bool
    alive: bool

    def __str__(self) -> str:
        return "NaN" if not self.finite else f"{self.error:.4f}" + ("" if self.alive else " dead")


def look(sorter: nn.Module, scores: Tensor) -> SearchHit:
    leaf = scores.clone().requires_grad_()
    ranks = sorter(leaf)
    weights = torch.randn(ranks.shape, generator=torch.Generator().manual_seed(1))
    (ranks * weights).sum().backward()
    assert leaf.grad is not None
    error = float((ranks.detach() - exact_ranks(scores)).abs().mean()) / scores.shape[1]
    finite = bool(ranks.isfinite().all() and leaf.grad.isfinite().all())
    return SearchHit(error, finite, bool((leaf.grad != 0).any(dim=1).all()))


def main() -> None:
    torch.set_num_threads(1)
    sorters = dict(HANDCRAFTED)
    for folder in sys.argv[1:]:
        sorter = load_sorter(Path(folder))
        sorters[type(sorter).__name__] = sorter
    for n in (2, 10, 100, 1000):
        print(f"\nn = {n}; bar of {OURS}: at most {BAR}, no NaN, not dead, everywhere; peers: the other rows")
        print(f"{'':<28}" + "".join(f"{kind:>13}" for kind in shifts(n)))
        for name, sorter in sorters.items():
            if getattr(sorter, "length", n) != n:
                continue
            cells = [look(sorter, scores) for scores in shifts(n).values()]
            holds = all(cell.finite and cell.alive and cell.error <= BAR for cell in cells)
            verdict = ("  ok" if holds else "  MISS") if name == OURS else ""
            print(f"{name:<28}" + "".join(f"{cell!s:>13}" for cell in cells) + verdict)


if __name__ == "__main__":
    main()
