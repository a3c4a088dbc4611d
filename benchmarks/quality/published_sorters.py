"""How far do the published sorters come towards thesis table 5.1 in a given CPU time?

    python -m benchmarks run quality.published_sorters [--only PublishedCNNSorter] [--minutes 10]

The published sizes: vectors of length 100, batches of 512, Adam. The thesis takes up to 400 epochs of 100,000 vectors.
An epoch here has 5,120, so that a training can stop and go on: run the command again for --minutes more of CPU time for
each sorter. The error is the lowest L1 error of ranks divided by n, on 10,000 held-out vectors.
"""

import argparse
import json
import time
from contextlib import suppress
from pathlib import Path

import torch

from benchmarks.common import ROOT, Report
from bifocal.pretraining.sorter import train_sorter
from bifocal.registry import build
from bifocal.training.loop import Row

HOME = ROOT / "runs" / "published_sorters"
PUBLISHED = {"LSTMLargeSorter": 0.0033, "PublishedCNNSorter": 0.0120}
"""Table 5.1."""
LENGTH, BATCH, VECTORS, EPOCHS, LEARNING_RATE = 100, 512, 5_120, 7_813, 0.001


class OutOfTimeError(Exception):
    """The CPU time of this call is used up."""


def train(name: str, seconds: float, home: Path, epochs: int = EPOCHS) -> tuple[float, int, float]:
    """Go on with a training; return the lowest held-out error, and the epochs and CPU seconds of all calls."""
    file, started = home / f"{name}.json", time.process_time()
    rows, spent = json.loads(file.read_text()) if file.is_file() else ([], 0.0)

    def on_epoch(row: Row) -> None:
        rows.append(row["held_out_l1"])
        used = time.process_time() - started
        file.write_text(json.dumps([rows, spent + used]))
        if used >= seconds:
            raise OutOfTimeError

    torch.manual_seed(0)
    home.mkdir(parents=True, exist_ok=True)
    sorter = build("bifocal.sorters", name, length=LENGTH)
    with suppress(OutOfTimeError):
        train_sorter(
            sorter, length=LENGTH, batch_size=BATCH, learning_rate=LEARNING_RATE, vectors_per_epoch=VECTORS,
            epochs=epochs, patience=epochs, tolerance=0.0, checkpoints=home / name, seed=0, on_epoch=on_epoch,
        )  # fmt: skip
    rows, spent = json.loads(file.read_text())
    return min(rows), len(rows), spent


def main() -> None:
    """Train the sorters further, and report their errors."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="*", choices=PUBLISHED, default=list(PUBLISHED))
    arguments.add_argument("--minutes", type=float, default=10.0, help="CPU time of each sorter in this call")
    arguments.add_argument("--home", type=Path, default=HOME)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    report = Report("quality.published_sorters")
    for name in options.only:
        error, epochs, spent = train(name, 60 * options.minutes, options.home)
        budget = f"{epochs * VECTORS:,} vectors, {spent / 60:.1f} CPU minutes; table 5.1: {PUBLISHED[name]:.4f}"
        report.add(f"L1 error of {name}", error, reference=budget)
    report.write()


if __name__ == "__main__":
    main()
