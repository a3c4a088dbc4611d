"""What do exact ranks cost beyond the matrix product?

    python -m benchmarks run speed.retrieval [--plot docs/retrieval_growth.png] [--large]

Random unit vectors, five captions per image, both directions, CPU seconds, median of three. The
floor is the matrix product of the same blocks. ``--large`` adds 100,000 x 500,000, which takes
minutes.
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.common import Report
from bifocal.metrics import retrieval_ranks
from bifocal.metrics.retrieval.blockwise_ranks import CAPTIONS, IMAGES

MAX_RATIO, MAX_MEGABYTES, MAX_GROWTH = 1.5, 300.0, 1.25
DIM = 1024
SHAPES = (1000, 2000, 5000, 10_000)
LARGE = (100_000, 16)


def vectors(images: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return unit vectors of images, of their five captions each, and each caption's image."""
    generator = torch.Generator().manual_seed(0)
    image_of_caption = torch.arange(images).repeat_interleave(5)
    return (
        normalize(torch.randn(images, dim, generator=generator), dim=1),
        normalize(torch.randn(5 * images, dim, generator=generator), dim=1),
        image_of_caption,
    )


def product(images: Tensor, captions: Tensor) -> None:
    """Compute every block of scores, and discard it."""
    for column in range(0, len(captions), CAPTIONS):
        for row in range(0, len(images), IMAGES):
            torch.mm(images[row : row + IMAGES], captions[column : column + CAPTIONS].T)


def seconds(work: Callable[..., object], *arguments: Tensor) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def extra_megabytes(images: int, dim: int) -> float:
    """Return the rise of resident memory in a new process, whose allocator holds no freed
    memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_extra_megabytes, images, dim).result()


def _extra_megabytes(images: int, dim: int) -> float:
    torch.set_num_threads(1)
    embeddings = vectors(images, dim)
    product(*vectors(IMAGES, dim)[:2])
    status = Path("/proc/self/status")

    def read(name: str) -> float:
        match = re.search(rf"{name}:\s+(\d+) kB", status.read_text())
        assert match
        return int(match[1]) / 1e3

    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = read("VmRSS")
    retrieval_ranks(*embeddings)
    return read("VmHWM") - before


def main() -> None:
    """Report time and memory at growing sizes."""
    report = Report("speed.retrieval")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, help="file of a plot of the growth")
    parser.add_argument("--large", action="store_true", help="add 100,000 x 500,000")
    options = parser.parse_args()
    torch.set_num_threads(1)
    product(*vectors(256, DIM)[:2])

    print(
        f"{'images x captions, d':>26} {'product, s':>11} {'ranks, s':>9} {'re-ranked, s':>13} "
        f"{'MB':>7}  ratio"
    )
    growth: list[tuple[float, float, float]] = []
    for size in SHAPES:
        embeddings = vectors(size, DIM)
        times: list[tuple[float, float]] = []
        for _ in range(3):
            bare = seconds(product, *embeddings[:2])
            times.append((bare, seconds(retrieval_ranks, *embeddings)))
        reranked = seconds(partial(retrieval_ranks, rerank=True), *embeddings)
        memory = extra_megabytes(size, DIM)
        bare, ranks = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(ranked / alone for alone, ranked in times)
        print(
            f"{size:>10,} x {5 * size:>7,}, {DIM} {bare:11.2f} {ranks:9.2f} {reranked:13.2f} "
            f"{memory:7.0f}  {ratio:.2f}"
        )
        growth.append((5.0 * size * size, bare, ranks))
        if size == 5000:
            report.add("5,000 x 25,000: time relative to the product", ratio, at_most=MAX_RATIO)
            report.add("5,000 x 25,000: extra memory", memory, "MB", at_most=MAX_MEGABYTES)
    (least, _, first), (most, _, last) = growth[1], growth[-1]
    name = "time per pair, 10,000 x 50,000 relative to 2,000 x 10,000"
    report.add(name, (last / most) / (first / least), at_most=MAX_GROWTH)
    if options.large:
        size, dim = LARGE
        spent, memory = seconds(retrieval_ranks, *vectors(size, dim)), extra_megabytes(size, dim)
        print(
            f"{size:>10,} x {5 * size:>7,}, {dim:>4} {'':>11} {spent:9.2f} {'':>13} {memory:7.0f}"
        )
        report.add("100,000 x 500,000, d = 16: CPU time", spent, "s")
        report.add("100,000 x 500,000, d = 16: extra memory", memory, "MB", at_most=MAX_MEGABYTES)
    if options.plot:
        plot_growth(options.plot, growth)
    report.write()


def plot_growth(path: Path, growth: list[tuple[float, float, float]]) -> None:
    """Write a plot of the time against the number of pairs."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    pairs, bare, ranks = zip(*growth, strict=True)
    axes.loglog(pairs, ranks, "o-", label="ranks of both directions")
    axes.loglog(pairs, bare, "s--", label="the bare matrix product")
    axes.loglog(
        pairs, [ranks[-1] * pair / pairs[-1] for pair in pairs], ":", color="gray", label="linear"
    )
    axes.set(xlabel="pairs of image and caption", ylabel=f"CPU seconds, d = {DIM}")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
