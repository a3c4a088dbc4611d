"""Does counting ranks cost more than the matrix product it rests on, and does it stay in memory?

python -m benchmarks.speed.retrieval [--plot growth.png] [--large]

Random unit vectors, five captions an image, both directions, CPU seconds (the median of three). The floor is the bare
product of the same blocks, whose results nobody looks at. ``--large`` counts 100,000 x 500,000 as well, some minutes.
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

from bifocal.metrics import retrieval_ranks
from bifocal.metrics.retrieval.blockwise_ranks import CAPTIONS, IMAGES

RATIO, MEGABYTES, DIM = 1.5, 300.0, 1024
SHAPES = (1000, 2000, 5000, 10_000)
LARGE = (100_000, 16)


def vectors(images: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    image_of_caption = torch.arange(images).repeat_interleave(5)
    return (
        normalize(torch.randn(images, dim, generator=generator), dim=1),
        normalize(torch.randn(5 * images, dim, generator=generator), dim=1),
        image_of_caption,
    )


def product(images: Tensor, captions: Tensor) -> None:
    """Every block of scores, thrown away."""
    for column in range(0, len(captions), CAPTIONS):
        for row in range(0, len(images), IMAGES):
            torch.mm(images[row : row + IMAGES], captions[column : column + CAPTIONS].T)


def seconds(work: Callable[..., object], *arguments: Tensor) -> float:
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def extra_megabytes(images: int, dim: int) -> float:
    """How far resident memory rises in a fresh process, whose allocator holds nothing of earlier work."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_extra_megabytes, images, dim).result()


def _extra_megabytes(images: int, dim: int) -> float:
    torch.set_num_threads(1)
    drawn = vectors(images, dim)
    product(*vectors(IMAGES, dim)[:2])
    status = Path("/proc/self/status")

    def read(name: str) -> float:
        found = re.search(rf"{name}:\s+(\d+) kB", status.read_text())
        assert found
        return int(found[1]) / 1e3

    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the present size
    before = read("VmRSS")
    retrieval_ranks(*drawn)
    return read("VmHWM") - before


def against(figure: float, bar: float) -> str:
    return f"{figure:9.2f}   bar {bar:6.1f}   {'ok' if figure <= bar else 'MISS'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plot", type=Path, help="where the growth is drawn")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    product(*vectors(256, DIM)[:2])

    print(f"{'images x captions, d':>26} {'product, s':>11} {'ranks, s':>9} {'re-ranked, s':>13} {'MB':>7}  ratio")
    grown: list[tuple[float, float, float]] = []
    for size in SHAPES:
        drawn = vectors(size, DIM)
        times: list[tuple[float, float]] = []
        for _ in range(3):
            bare = seconds(product, *drawn[:2])
            times.append((bare, seconds(retrieval_ranks, *drawn)))
        again = seconds(partial(retrieval_ranks, rerank=True), *drawn)
        memory = extra_megabytes(size, DIM)
        bare, ours = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(counted / alone for alone, counted in times)
        print(f"{size:>10,} x {5 * size:>7,}, {DIM} {bare:11.2f} {ours:9.2f} {again:13.2f} {memory:7.0f}  {ratio:.2f}")
        grown.append((5.0 * size * size, bare, ours))
        if size == 5000:
            print(f"  time over the bare product     {against(ratio, RATIO)}")
            print(f"  extra memory, MB               {against(memory, MEGABYTES)}")
    (least, _, first), (most, _, last) = grown[1], grown[-1]
    print(f"  time per pair, largest/second  {against((last / most) / (first / least), 1.25)}")
    if options.large:
        size, dim = LARGE
        spent, memory = seconds(retrieval_ranks, *vectors(size, dim)), extra_megabytes(size, dim)
        print(f"{size:>10,} x {5 * size:>7,}, {dim:>4} {'':>11} {spent:9.2f} {'':>13} {memory:7.0f}")
        print(f"  extra memory, MB               {against(memory, MEGABYTES)}")
    if options.plot:
        draw(options.plot, grown)


def draw(path: Path, grown: list[tuple[float, float, float]]) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    pairs, bare, ours = zip(*grown, strict=True)
    axes.loglog(pairs, ours, "o-", label="ranks of both directions")
    axes.loglog(pairs, bare, "s--", label="the matrix product alone")
    axes.loglog(pairs, [ours[-1] * pair / pairs[-1] for pair in pairs], ":", color="grey", label="linear")
    axes.set(xlabel="pairs of image and caption", ylabel=f"CPU seconds, d = {DIM}")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
