"""Does 'bifocal train' beat fast.yaml and zero-shot class names on few photographs?

    python -m benchmarks run quality.first_use [--data ../shared/data] [--folder runs/first_use]

Draws photographs of Flickr8k's list of train with all captions, or with one each, and runs "bifocal
train" on them as a user does: first its default, then the parts of recipes/flickr8k/fast.yaml. The
encoders of 'bifocal index --encoder small' answer without any training. The queries are the
captions and images of the run's own test split, 15 % of the photographs; trained models have the
correction for hubness, as served. Complete stages are kept in the folder: a killed benchmark goes
on with the same command. The time of a training is reported if it was not killed.
"""

import argparse
import json
import os
import resource
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import yaml

from benchmarks.common import ROOT, Report
from benchmarks.speed.first_use import bifocal, write_photographs
from bifocal.datasets import read_dataset
from bifocal.metrics import retrieval_ranks, summarize
from bifocal.onnx.encoders import Embedder
from pipelines.app.encoders import encoder_folder

RECIPE = ROOT / "recipes" / "flickr8k" / "fast.yaml"
DIRECTIONS, KS = ("caption_retrieval", "image_retrieval"), (1, 5, 10)
BATCH = 8
Recalls = Mapping[str, Mapping[str, float]]


def train(
    folder: Path, weights: Path, run: str, *arguments: object
) -> tuple[Recalls, list[float] | None]:
    """Train a run in ``folder`` unless it is complete; return its corrected recalls, and its wall
    and CPU minutes.

    The minutes are None if the training was killed and went on.
    """
    artifacts, times = folder / run / "artifacts", folder / run / "times.json"
    if not times.is_file():
        killed, start, cpu = artifacts.exists(), time.monotonic(), _children_seconds()
        bifocal(folder, "train", "photos", "--weights", weights, "--run", run, *arguments)
        minutes = [(time.monotonic() - start) / 60, (_children_seconds() - cpu) / 60]
        times.write_text(json.dumps(None if killed else minutes))
    return json.loads((artifacts / "metrics" / "metrics.json").read_text())[
        "corrected"
    ], json.loads(times.read_text())


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def fast_parts(folder: Path) -> Path:
    """Write the parts of fast.yaml as a recipe for ``bifocal train``, which shares the dataset of
    the default."""
    recipe = yaml.safe_load(RECIPE.read_text())
    texts = recipe["vectorize_captions"]["vectorizer"]["vectorizers"]
    texts[1]["path"] = str((ROOT / texts[1]["path"]).resolve())
    file, dataset = folder / "fast.yaml", folder / "fast" / "artifacts" / "dataset"
    del recipe["extract_features"]["weights"]  # --weights names them
    sections = ("extract_features", "vectorize_captions", "train_embedding")
    file.write_text(yaml.safe_dump({name: recipe[name] for name in sections}))
    if not dataset.exists():
        shutil.copytree(
            folder / "default" / "artifacts" / "dataset", dataset, copy_function=os.link
        )
    return file


def untrained(artifacts: Path, embedder: Embedder) -> Recalls:
    """Return the recalls of class names in the test split of a run."""
    test = read_dataset(artifacts / "dataset").split("test")
    ids = test.images["image_id"].astype(str).tolist()
    files = [test.image_path(image_id).read_bytes() for image_id in ids]
    images = np.concatenate(
        [embedder.embed_images(files[row : row + BATCH]) for row in range(0, len(files), BATCH)]
    )
    captions = np.concatenate([embedder.embed_sentences([text]) for text in test.captions["text"]])
    own = torch.tensor([ids.index(image_id) for image_id in test.captions["image_id"].astype(str)])
    return summarize(retrieval_ranks(torch.from_numpy(images), torch.from_numpy(captions), own), KS)


def recall_sum(recalls: Recalls) -> float:
    """Return the sum of R@1, R@5 and R@10 in both directions."""
    return sum(recalls[direction][f"R@{k}"] for direction in DIRECTIONS for k in KS)


def first_ranks(recalls: Recalls) -> str:
    """Return R@1 of captions and images."""
    return "R@1 " + " / ".join(f"{recalls[direction]['R@1']:.1f}" for direction in DIRECTIONS)


def measure(
    report: Report, options: argparse.Namespace, embedder: Embedder, count: int, captions: int
) -> None:
    """Report the default beside its peers on ``count`` photographs."""
    folder = (options.folder / f"{count}-{captions}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "photos").is_dir():
        shutil.rmtree(folder / "drawn", ignore_errors=True)
        write_photographs(options.data / "flickr8k", folder / "drawn", count, captions)
        (folder / "drawn").rename(folder / "photos")
    weights = (options.data / "weights").resolve()
    default, minutes = train(folder, weights, "default")
    peers = {
        "class names": untrained(folder / "default" / "artifacts", embedder),
        "fast.yaml": train(folder, weights, "fast", "--recipe", fast_parts(folder))[0],
    }
    name = f"{count:,} photographs, {captions} caption{'s' if captions > 1 else ''} each"
    for peer, recalls in peers.items():
        report.add(
            f"{name}: recall sum, {peer}", recall_sum(recalls), "%", reference=first_ranks(recalls)
        )
    bar = max(recall_sum(recalls) for recalls in peers.values())
    report.add(
        f"{name}: recall sum, bifocal train",
        recall_sum(default),
        "%",
        at_least=bar,
        reference=first_ranks(default),
    )
    if minutes is not None:
        wall, cpu = minutes
        report.add(
            f"{name}: CPU time of bifocal train", cpu, "minutes", reference=f"wall time {wall:.1f}"
        )


def main() -> None:
    """Measure each number of photographs with five captions and with one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "first_use")
    parser.add_argument("--photographs", type=int, nargs="+", default=[300, 1000, 6000])
    parser.add_argument("--captions", type=int, nargs="+", default=[5, 1])
    options = parser.parse_args()
    report, embedder = (
        Report("quality.first_use"),
        Embedder(encoder_folder("small", options.data / "weights")),
    )
    for count in options.photographs:
        for captions in options.captions:
            measure(report, options, embedder, count, captions)
            report.write()


if __name__ == "__main__":
    main()
