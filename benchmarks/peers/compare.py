"""Ratios of CPU time between a package and this project, for the benchmarks of
``benchmarks/peers``."""

import ctypes
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.common import (
    RESULTS,
    Report,
    cpu_seconds,
    peak_kilobytes,
    processor,
    read_results,
)

REPEATS, SECONDS = 15, 8.0
"""Pairs of calls, fewer if all take longer than this."""
FALL = 0.2
"""Share by which a ratio may fall from one measurement to the next."""


def compare(
    report: Report,
    work: str,
    peer: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    clock: Callable[[Callable[[], object]], float] = cpu_seconds,
) -> None:
    """Report how many times as long the peer takes: median and spread of pairs of calls, after one
    call of each.

    The reference has both times, and the memory that a call adds unless ``clock`` is of other
    processes.

    Args:
        peer: package of the package index, and its variant, such as "faiss-cpu HNSW". A floor does
            less work: its name ends in "(floor)", and it has no bar.
        clock: returns the seconds of a call.
    """
    ours()
    once = clock(theirs)
    count = max(3, min(REPEATS, int(SECONDS / max(once, 1e-6))))
    pairs = [(clock(ours), clock(theirs)) for _ in range(count)]
    ratios = [other / max(own, 1e-9) for own, other in pairs]
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    own, other = (1000 * float(np.median(times)) for times in zip(*pairs, strict=True))
    package = peer.partition(" ")[0]
    memory = (
        f"{added_megabytes(ours):.0f} and {added_megabytes(theirs):.0f} MB; "
        if clock is cpu_seconds
        else ""
    )
    report.add(
        f"{work}: {peer}",
        float(middle),
        "times",
        at_least=None if peer.endswith("(floor)") else 1.0,
        reference=f"{low:.2f} to {high:.2f}; {own:.2f} and {other:.2f} ms; {memory}{package} "
        f"{version(package)}",
    )


def added_megabytes(function: Callable[[], object]) -> float:
    """Return the largest memory of a forked process during a call, less its memory before."""
    source, target = os.pipe()
    child = os.fork()
    if not child:
        try:
            function()  # loads what a first call loads
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
            before = peak_kilobytes()
            function()
            # Counted by the kernel in batches of pages: the difference may be a little below 0.
            os.write(target, str(max(0, peak_kilobytes() - before)).encode())
        finally:
            os._exit(0)
    os.close(target)
    with os.fdopen(source) as pipe:
        kilobytes = pipe.read()
    os.waitpid(child, 0)
    return 1.024 * int(kilobytes) / 1000


def write(report: Report, folder: Path = RESULTS) -> None:
    """Write the results; exit with an error if a ratio fell by more than ``FALL`` since the last
    measurement on a processor of this kind."""
    file = folder / f"{report.benchmark}.json"
    before = {
        result.name: result.value
        for result in (read_results(file) if file.is_file() else [])
        if result.processor == processor()
    }
    report.write(folder)
    found = [(result.name, before.get(result.name, 0.0), result.value) for result in report.results]
    if fallen := [
        f"{name}: {old:.2f} to {new:.2f}" for name, old, new in found if new < (1 - FALL) * old
    ]:
        raise SystemExit("\n".join([f"ratios fell by more than {FALL:.0%}:", *fallen]))
