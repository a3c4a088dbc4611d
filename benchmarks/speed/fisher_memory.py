"""Do the Fisher vectors of 150,000 captions, reduced to 6,000 numbers, fit in 8 GB?

python -m benchmarks.speed.fisher_memory [--captions 150000]

Fits words, mixture and principal components at the paper's sizes, then writes the text artifact, all in one process;
the peak of its resident memory is what Linux says (VmHWM). An hour of one core.
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.speed.text import captions, peak_kilobytes, report
from bifocal.text.vectorizers import FisherVectors
from bifocal.text.vectorizers.base import write_text


def main(count: int) -> None:
    """Fit and write; the floor is the memory before, with everything imported."""
    texts = captions(count)
    floor = peak_kilobytes() / 2**20
    vectorizer = FisherVectors()
    start = time.perf_counter()
    vectorizer.fit(texts, seed=0)
    fitted = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder), vectorizer, list(range(count)), texts)
        written = sum(file.stat().st_size for file in Path(folder).rglob("*"))
    report(f"{count} captions: fit", fitted - start, "s")
    report(f"{count} captions: vectors, PCA, written", time.perf_counter() - fitted, "s")
    report(f"{count} captions x {vectorizer.format.dim}, on disk", written / 2**30, "GB")
    report("peak memory", peak_kilobytes() / 2**20, "GB", bar=8, at_most=True, peer=f"{floor:.2g} GB before")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=150_000)
    main(parser.parse_args().captions)
