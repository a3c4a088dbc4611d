"""Do the Fisher vectors of 150,000 captions fit in 8 GB?

    python -m benchmarks run speed.fisher_memory [--captions 150000]

Fits word vectors, mixture and principal components in the paper's sizes, then writes the text
artifact, all in one process. The peak of the resident memory is VmHWM of Linux. Takes half an hour
on one core.
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.common import Report, peak_kilobytes
from benchmarks.speed.text import captions
from bifocal.text.vectorizers import FisherVectors
from bifocal.text.vectorizers.base import write_text


def main(count: int) -> None:
    """Fit and write; the floor is the memory after the imports."""
    report = Report("speed.fisher_memory")
    texts = captions(count)
    floor = peak_kilobytes() / 2**20
    vectorizer = FisherVectors()
    start = time.process_time()
    vectorizer.fit(texts, seed=0)
    fitted = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder), vectorizer, list(range(count)), texts)
        written = sum(file.stat().st_size for file in Path(folder).rglob("*"))
    report.add(f"{count} captions: fit", fitted - start, "CPU s")
    report.add(f"{count} captions: vectors, PCA, written", time.process_time() - fitted, "CPU s")
    report.add(f"{count} captions x {vectorizer.format.dim}, on disk", written / 2**30, "GB")
    reference = f"{floor:.2g} GB after the imports"
    report.add("peak memory", peak_kilobytes() / 2**20, "GB", at_most=8, reference=reference)
    report.write()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--captions", type=int, default=150_000)
    main(parser.parse_args().captions)
