"""What do forward and backward of each sorter cost, in time and in memory, and what does drawing scores cost?

    python -m benchmarks.speed.sorters

One thread, CPU time, median after a warm start; beside torch.sort of the same scores. The permutahedron is given our
own fast sort of rows, and for comparison torch's.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import psutil
import torch
from torch import Tensor, nn

from benchmarks.handcrafted_sorters import HANDCRAFTED, OURS, QUADRATIC, line
from bifocal.sorters import BifocalSorter, CNNSorter, LSTMSorter
from bifocal.sorters.synthetic import synthetic_scores

MOST_SORTS = 3.0
LARGEST_MATRIX = 1e8
SIZES = ((512, 100), (512, 1000), (64, 10_000))
MOST_GROWTH = 2.2


def milliseconds(step: Callable[[], object], repeats: int = 15) -> float:
    """Median CPU time after a warm start."""
    step()
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        step()
        times.append(time.thread_time() - start)
    return 1e3 * float(np.median(times))


def of_sorter(sorter: nn.Module, scores: Tensor, weights: Tensor, repeats: int) -> float:
    leaf = scores.clone().requires_grad_()

    def step() -> None:
        leaf.grad = None
        (sorter(leaf) * weights).sum().backward()

    return milliseconds(step, repeats)


def torch_sort(rows: Tensor) -> tuple[Tensor, Tensor]:
    ordered, order = rows.sort(dim=-1)
    return ordered, order


def compare(batch: int, n: int) -> None:
    scores, weights = torch.randn(batch, n), torch.randn(batch, n)
    floor = milliseconds(lambda: scores.sort(dim=-1))
    print(f"\nforward + backward, batch {batch}, n = {n}")
    line("torch.sort alone, the floor", f"{floor:9.2f} ms")
    found: dict[str, float] = {}
    for name, sorter in HANDCRAFTED.items():
        if name in QUADRATIC and batch * n * n > LARGEST_MATRIX:
            line(name, f"{'-':>9}", f"needs {batch * n * n * 4 / 1e9:,.0f} GB a matrix")
            continue
        found[name] = of_sorter(sorter, scores, weights, 3 if name in QUADRATIC else 15)
    with patch("bifocal.sorters.permutahedron.sort_rows", torch_sort):
        found["PermutahedronSorter, torch.sort"] = of_sorter(HANDCRAFTED["PermutahedronSorter"], scores, weights, 15)
    for name, value in found.items():
        ratio = f"{value:9.2f} ms  {value / floor:6.2f} sorts"
        if name == OURS:
            line(name, ratio, f"bar at most {MOST_SORTS:g} sorts", value <= MOST_SORTS * floor)
        elif name.startswith(("Permutahedron", *QUADRATIC)):
            line(name, ratio, f"bar: {OURS} {found[OURS]:.2f} ms is ahead", found[OURS] < value)
        else:
            line(name, ratio)


def generation(batch: int = 512, n: int = 100) -> None:
    """Scores drawn on the fly against the training step of each sorter that is trained on them."""
    generator = torch.Generator().manual_seed(0)
    drawn = milliseconds(lambda: synthetic_scores(batch, n, generator))
    print(f"\ndrawing synthetic scores, batch {batch}, n = {n}: {drawn:.2f} ms")
    scores, weights = synthetic_scores(batch, n, generator), torch.randn(batch, n)
    for sorter in (LSTMSorter(length=n), CNNSorter(length=n)):
        step = of_sorter(sorter, scores, weights, 3)
        line(f"a training step of {type(sorter).__name__}", f"{step:9.2f} ms", "bar: drawing is faster", drawn < step)


def memory() -> None:
    print("\npeak memory of forward + backward of one row, in a process of its own")
    sizes = (2_000_000, 4_000_000, 8_000_000)
    command = [sys.executable, "-m", "benchmarks.speed.sorters", "--peak"]
    peaks = [int(subprocess.check_output([*command, str(n)])) for n in sizes]
    for n, peak in zip(sizes, peaks, strict=True):
        line(f"n = {n:,}", f"{peak / n:6.0f} bytes a score")
    growth = (peaks[2] - peaks[1]) / (peaks[1] - peaks[0])
    reference = f"bar at most {MOST_GROWTH}, linear 2, quadratic 4"
    line("4 to 8 million over 2 to 4 million", f"{growth:.2f}", reference, growth <= MOST_GROWTH)


def peak_bytes(n: int) -> int:
    scores, weights = torch.randn(1, n, requires_grad=True), torch.randn(1, n)
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten, that of the imports too
    (BifocalSorter()(scores) * weights).sum().backward()
    peak = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    return 1024 * int(peak.split()[1]) - before


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--peak"]:
        print(peak_bytes(int(sys.argv[2])))
        return
    for batch, n in SIZES:
        compare(batch, n)
    generation()
    memory()


if __name__ == "__main__":
    main()
