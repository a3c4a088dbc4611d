"""How long does 'bifocal train' take, and does --budget keep its time?

    python -m benchmarks run speed.first_use --data FLICKR8K --weights FILE [--photographs 500]
    [--budgets 2m 8m]

Writes a folder with photographs of Flickr8k's list of train and their captions.csv, as a user has
it, runs "bifocal train" on it and evaluates the drawn val split. Each budget is a training of its
own.
"""

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.common import ROOT, Report, wall_seconds
from bifocal.datasets.corpora import Flickr8k
from pipelines.app.training.budget import FILE, parse_budget

MINUTES, TIMES_CHANCE, K = 8.0, 5.0, 10
"""Bars of a training without a budget: wall time, and R@K of the val split relative to chance."""
LATE = 1.1
"""Bar of a budget: time that a training takes at most, relative to its budget."""


def write_photographs(flickr8k: Path, folder: Path, count: int, captions: int = 5) -> None:
    """Write links to ``count`` drawn photographs and ``captions.csv`` with their first ``captions``
    captions."""
    corpus = Flickr8k(flickr8k).read(folder)
    paths = {image.image_id: image.path for image in corpus.images if image.split == "train"}
    chosen = set(random.Random(0).sample(sorted(paths), count))
    folder.mkdir()
    for image_id in chosen:
        shutil.copy(corpus.image_root / str(paths[image_id]), folder / image_id)
    texts: dict[str, list[str]] = {image_id: [] for image_id in sorted(chosen)}
    for entry in corpus.captions:
        if entry.image_id in texts:
            texts[entry.image_id].append(entry.text)
    with (folder / "captions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption"])
        writer.writerows(
            (image_id, text) for image_id in texts for text in texts[image_id][:captions]
        )


def bifocal(folder: Path, *arguments: object) -> None:
    """Run the command in ``folder``; its output goes to the terminal."""
    command = [sys.executable, "-c", "from pipelines.app import main; main()", *map(str, arguments)]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


def report_training(report: Report, folder: Path, photographs: int, weights: Path) -> None:
    """Report the wall time of a training, and R@10 of its val split."""
    train = partial(bifocal, folder, "train", "photos", "--weights", weights)
    minutes = wall_seconds(train) / 60
    report.add(f"{photographs} photographs, bifocal train", minutes, "minutes", at_most=MINUTES)
    bifocal(folder, "evaluate", "--split", "val")
    metrics = json.loads(
        (folder / "runs" / "photos" / "artifacts" / "metrics" / "metrics.json").read_text()
    )
    for direction in ("caption_retrieval", "image_retrieval"):
        values, chance = metrics[direction][f"R@{K}"], metrics["chance"][direction][f"R@{K}"]
        name = (
            f"{photographs} photographs, {direction.replace('_', ' ')} R@{K} of the drawn val "
            "split, relative to chance"
        )
        report.add(name, values / chance, at_least=TIMES_CHANCE, reference=f"{values:.1f} %")


def report_budget(
    report: Report, folder: Path, photographs: int, weights: Path, budget: str
) -> None:
    """Report the time that a training takes, relative to its budget."""
    train = partial(
        bifocal,
        folder,
        "train",
        "photos",
        "--weights",
        weights,
        "--budget",
        budget,
        "--run",
        budget,
    )
    taken = wall_seconds(train) / parse_budget(budget)
    choice = json.loads((folder / budget / FILE).read_text())["choice"]
    expected = choice["seconds"] / parse_budget(budget)
    reference = f"{choice['size']} pixels, {choice['epochs']} epochs; expected {expected:.2f}"
    report.add(
        f"{photographs} photographs, time relative to --budget {budget}",
        taken,
        at_most=LATE,
        reference=reference,
    )


def main() -> None:
    """Train without and with budgets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of Flickr8k")
    parser.add_argument(
        "--weights", type=Path, required=True, help="safetensors file of a backbone"
    )
    parser.add_argument("--photographs", type=int, default=500)
    parser.add_argument("--budgets", nargs="*", default=["2m", "8m"])
    options = parser.parse_args()
    report, weights = Report("speed.first_use"), options.weights.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_photographs(options.data, folder / "photos", options.photographs)
        report_training(report, folder, options.photographs, weights)
        for budget in options.budgets:
            report_budget(report, folder, options.photographs, weights, budget)
    report.write()


if __name__ == "__main__":
    main()
