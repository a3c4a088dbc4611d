"""What do forward and backward of each sorter cost?

    python -m benchmarks run speed.sorters

One thread, CPU time, median after a warm-up. The floor is torch.sort of the same scores.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor, nn

from benchmarks.common import Report, peak_kilobytes
from benchmarks.handcrafted_sorters import HANDCRAFTED, OURS, QUADRATIC
from bifocal.sorters import CNNSorter, ExactRankSorter, PositionwiseLSTMSorter
from bifocal.sorters.synthetic import synthetic_scores

MAX_SORTS = 3.0
LARGEST_MATRIX = 1e8
SIZES = ((512, 100), (512, 1000), (64, 10_000))
MAX_GROWTH = 2.2


def milliseconds(step: Callable[[], object], repeats: int = 15) -> float:
    """Return the median CPU time after a warm-up."""
    step()
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        step()
        times.append(time.thread_time() - start)
    return 1e3 * float(np.median(times))


def step_milliseconds(sorter: nn.Module, scores: Tensor, weights: Tensor, repeats: int) -> float:
    """Return the time of forward and backward."""
    leaf = scores.clone().requires_grad_()

    def step() -> None:
        leaf.grad = None
        (sorter(leaf) * weights).sum().backward()

    return milliseconds(step, repeats)


def compare(report: Report, batch: int, n: int) -> None:
    """Compare forward and backward of all sorters."""
    scores, weights = torch.randn(batch, n), torch.randn(batch, n)
    floor = milliseconds(lambda: scores.sort(dim=-1))
    setting = f"batch {batch}, n = {n}"
    report.add(f"torch.sort, {setting}", floor, "ms")
    times: dict[str, float] = {}
    for name, sorter in HANDCRAFTED.items():
        if name in QUADRATIC and batch * n * n > LARGEST_MATRIX:
            print(f"{name}, {setting}: skipped, one matrix needs {batch * n * n * 4 / 1e9:,.0f} GB")
            continue
        times[name] = step_milliseconds(sorter, scores, weights, 3 if name in QUADRATIC else 15)
    for name, value in times.items():
        reference = f"{value / floor:.2f} times torch.sort"
        if name == OURS:
            report.add(
                f"{name}, {setting}", value, "ms", at_most=MAX_SORTS * floor, reference=reference
            )
        elif name in QUADRATIC:
            report.add(
                f"{name}, {setting}: slower than {OURS}",
                value,
                "ms",
                at_least=times[OURS],
                reference=reference,
            )
        else:
            report.add(f"{name}, {setting}", value, "ms", reference=reference)


def generation(report: Report, batch: int = 512, n: int = 100) -> None:
    """Compare drawing synthetic scores with a training step of each learned sorter."""
    generator = torch.Generator().manual_seed(0)
    drawing = milliseconds(lambda: synthetic_scores(batch, n, generator))
    report.add(f"drawing synthetic scores, batch {batch}, n = {n}", drawing, "ms")
    scores, weights = synthetic_scores(batch, n, generator), torch.randn(batch, n)
    for sorter in (PositionwiseLSTMSorter(length=n), CNNSorter(length=n)):
        step = step_milliseconds(sorter, scores, weights, 3)
        report.add(
            f"training step of {type(sorter).__name__}: slower than drawing",
            step,
            "ms",
            at_least=drawing,
        )


def memory(report: Report) -> None:
    """Report the peak memory of forward and backward of one row, in separate processes."""
    sizes = (2_000_000, 4_000_000, 8_000_000)
    command = [sys.executable, "-m", "benchmarks.speed.sorters", "--peak"]
    peaks = [int(subprocess.check_output([*command, str(n)])) for n in sizes]
    for n, peak in zip(sizes, peaks, strict=True):
        report.add(f"peak memory of one row, n = {n:,}", peak / n, "bytes / score")
    growth = (peaks[2] - peaks[1]) / (peaks[1] - peaks[0])
    name = "growth of the memory, 4 to 8 million over 2 to 4 million"
    report.add(name, growth, at_most=MAX_GROWTH, reference="linear 2, quadratic 4")


def peak_bytes(n: int) -> int:
    """Return the rise of resident memory during forward and backward of one row."""
    scores, weights = torch.randn(1, n, requires_grad=True), torch.randn(1, n)
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak of the imports
    (ExactRankSorter()(scores) * weights).sum().backward()
    return 1024 * peak_kilobytes() - before


def main() -> None:
    """Report time and memory of all sorters."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--peak"]:
        print(peak_bytes(int(sys.argv[2])))
        return
    report = Report("speed.sorters")
    for batch, n in SIZES:
        compare(report, batch, n)
    generation(report)
    memory(report)
    report.write()


if __name__ == "__main__":
    main()
