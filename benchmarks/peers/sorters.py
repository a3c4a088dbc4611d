"""How do differentiable ranks compare with torchsort and diffsort?

    make peers

Forward and backward of a batch, on one core. Ours are exact ranks; the soft ranks of the packages
are compared with them first. A sort of torch, which has no gradient, is the floor.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torchsort
from diffsort import DiffSortNet
from torch import Tensor

from benchmarks.common import Report
from benchmarks.peers.compare import compare, write
from bifocal.sorters import ExactRankSorter, exact_ranks

SIZES = ((512, 100), (512, 1000), (64, 10_000))
STRENGTH, STEEPNESS, ERROR = 0.1, 200.0, 0.1


def torchsort_ranks(scores: Tensor) -> Tensor:
    """Return soft ranks, 0 for the highest score, as our sorters do."""
    return cast(
        Tensor, torchsort.soft_rank(-scores, regularization_strength=STRENGTH / scores.shape[1]) - 1
    )


def compare_ranks(
    report: Report, batch: int, n: int, peer: str, ranks: Callable[[Tensor], Tensor]
) -> None:
    """Compare the ranks of a peer with the true ranks, then a training step of both sorters."""
    scores = torch.randn(batch, n, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weights, exact, ours = torch.randn(batch, n), exact_ranks(scores.detach()), ExactRankSorter()
    assert torch.equal(ours(scores).detach(), exact)
    assert (ranks(scores).detach() - exact).abs().mean() / n < ERROR

    def step(sorter: Callable[[Tensor], Tensor]) -> None:
        scores.grad = None
        (sorter(scores) * weights).sum().backward()

    work, values = f"ranks, {batch} x {n:,}", scores.detach()
    compare(report, work, peer, partial(step, ours), partial(step, ranks))
    compare(report, work, "torch sort (floor)", partial(step, ours), lambda: values.sort(dim=1))


def main() -> None:
    """Compare the sorters."""
    torch.set_num_threads(1)
    report, network, places = (
        Report("peers.sorters"),
        DiffSortNet("odd_even", 128, steepness=STEEPNESS),
        127.0 - torch.arange(128),
    )
    for batch, n in SIZES:
        compare_ranks(report, batch, n, "torchsort", torchsort_ranks)
    compare_ranks(
        report,
        64,
        128,
        "diffsort",
        lambda scores: torch.einsum("bij,j->bi", network(scores)[1], places),
    )
    write(report)


if __name__ == "__main__":
    main()
