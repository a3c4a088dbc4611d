"""How close do the published sorters get to thesis table 5.1?

    python -m benchmarks run quality.published_sorters [--only PublishedCNNSorter] [--minutes 10]
    [--epochs 40] [--vectors authors]

Vectors are drawn as in the text of the thesis, or as in the authors' code, on which table 5.1 was
measured. The published sizes: vectors of length 100, batches of 512, Adam with a learning rate of
0.001. The thesis halves the rate every 100 epochs of 100,000 vectors, until the loss is stable: 400
epochs here. With fewer planned --epochs the rate is halved after each quarter of them, so the
schedule is the same on fewer vectors. The error is the lowest L1 error of ranks divided by n after
an epoch, on 10,000 held-out vectors.

A training stops before an epoch that would not fit, and goes on when the command is run again, for
--minutes more for each sorter. On a CPU an epoch has 5,120 vectors, and --minutes is CPU time. On a
GPU an epoch has the 100,000 vectors of the thesis, --minutes is wall time, and convolutions and
LSTMs compute in TF32, PyTorch's default.
"""

import argparse
import json
import time
from contextlib import suppress
from pathlib import Path

import torch

from benchmarks.common import ROOT, Report
from benchmarks.quality.sorters import public_scores
from bifocal.registry import build
from bifocal.sorters.synthetic import synthetic_scores
from bifocal.training.loop import Row
from bifocal.training.pretraining.sorter import Draw, train_sorter
from bifocal.training.schedules import Step

HOME = ROOT / "runs" / "published_sorters"
PUBLISHED = {"LSTMLargeSorter": 0.0033, "PublishedCNNSorter": 0.0120, "CNNSorter": 0.0120}
"""Table 5.1, with one CNN: ``CNNSorter`` follows the text of the thesis, ``PublishedCNNSorter`` the
authors' code."""
DRAWS: dict[str, Draw] = {"thesis": synthetic_scores, "authors": public_scores}
LENGTH, BATCH, LEARNING_RATE = 100, 512, 0.001
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VECTORS, EPOCHS = (100_000, 400) if DEVICE == "cuda" else (5_120, 7_813)
clock = time.perf_counter if DEVICE == "cuda" else time.process_time


class OutOfTimeError(Exception):
    """The time of this call is used up."""


def train(
    name: str,
    seconds: float,
    home: Path,
    epochs: int = EPOCHS,
    draw: Draw = synthetic_scores,
) -> tuple[float, int, float]:
    """Go on with a training; return the lowest held-out error, and the epochs and seconds of all
    calls."""
    file, started = home / f"{name}.json", clock()
    rows, spent = json.loads(file.read_text()) if file.is_file() else ([], 0.0)
    before = len(rows)

    def on_epoch(row: Row) -> None:
        rows.append(row["held_out_l1"])
        used = clock() - started
        file.write_text(json.dumps([rows, spent + used]))
        if used + used / (len(rows) - before) > seconds:
            raise OutOfTimeError

    torch.manual_seed(0)
    home.mkdir(parents=True, exist_ok=True)
    sorter = build("bifocal.sorters", name, length=LENGTH).to(DEVICE)
    with suppress(OutOfTimeError):
        train_sorter(
            sorter,
            length=LENGTH,
            batch_size=BATCH,
            learning_rate=LEARNING_RATE,
            schedule=Step(epochs / 4, 0.5),
            vectors_per_epoch=VECTORS,
            epochs=epochs,
            patience=epochs,
            tolerance=0.0,
            checkpoints=home / name,
            seed=0,
            draw=draw,
            on_epoch=on_epoch,
        )
    rows, spent = json.loads(file.read_text())
    return min(rows), len(rows), spent


def main() -> None:
    """Train the sorters further, and report their errors."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--only", nargs="*", choices=PUBLISHED, default=list(PUBLISHED))
    arguments.add_argument(
        "--minutes", type=float, default=10.0, help="time of each sorter in this call"
    )
    arguments.add_argument("--epochs", type=int, default=EPOCHS, help="planned epochs")
    arguments.add_argument("--home", type=Path, default=HOME, help="folder of the checkpoints")
    arguments.add_argument("--vectors", choices=DRAWS, default="thesis")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    place, unit = (" on a GPU", "minutes") if DEVICE == "cuda" else ("", "CPU minutes")
    report = Report("quality.published_sorters")
    home = options.home if options.vectors == "thesis" else options.home / options.vectors
    of_authors = "" if options.vectors == "thesis" else ", vectors of the authors' code"
    for name in options.only:
        error, epochs, spent = train(
            name, 60 * options.minutes, home, options.epochs, DRAWS[options.vectors]
        )
        budget = (
            f"{epochs * VECTORS:,} vectors, {epochs} of {options.epochs} planned epochs, "
            f"{spent / 60:.1f} {unit}"
        )
        report.add(
            f"L1 error of {name}{place}{of_authors}",
            error,
            reference=f"{budget}; table 5.1: {PUBLISHED[name]:.4f}" if of_authors else budget,
        )
    report.write()


if __name__ == "__main__":
    main()
