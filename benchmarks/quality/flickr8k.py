"""What does each part of a system give on photographs?

    python -m benchmarks run quality.flickr8k [--seeds 1 2 3] [--artifacts FOLDER] [--output docs/flickr8k.md]

An ablation on Flickr8k. Needs the artifacts dataset, features and text of
"make repro RECIPE=recipes/flickr8k/smile.yaml". The whole system adds a structure term, hardest negatives and a rank
loss to the recipe's InfoNCE. Each is removed in turn, with the same budget and seeds; the columns compare re-ranking.
The loss weights were set once, before the run. Results are on the dev split, which also chooses the epoch. They are
cached beside the artifacts; a second process with --backwards shares the work.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, Report, measured
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.metrics import retrieval_ranks, summarize
from bifocal.models import load_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.models.embedding import embed
from bifocal.sorters import BifocalSorter, save_sorter
from bifocal.text import TextStore
from components import catalog
from components.train_embedding.run import run
from components.train_embedding.spec import COMPONENT, TrainEmbeddingParams
from runtime import parameters
from runtime.artifacts import artifact_hash
from runtime.identity import installed_key

RECIPE = ROOT / "recipes" / "flickr8k" / "smile.yaml"
INFO_NCE = {"name": "InfoNCELoss", "temperature": 0.07}
PARTS: dict[str, tuple[dict[str, Any], float]] = {
    "the structure term": ({"name": "StructurePreservingLoss", "visual_weight": 0.0, "textual_weight": 0.2}, 0.1),
    "hardest negatives": ({"name": "HardestTripletLoss", "margin": 0.2}, 0.5),
    "the rank loss": ({"name": "RecallLoss", "surrogate": "recall"}, 1.0),
}
"""Loss terms and their weights."""
SYSTEMS = {
    "whole": list(PARTS),
    **{f"without {removed}": [part for part in PARTS if part != removed] for removed in PARTS},
    "InfoNCE alone (the recipe)": [],
}
BARS = {"caption_retrieval": 31.0, "image_retrieval": 23.0}


def loss(parts: list[str]) -> dict[str, Any]:
    """Return InfoNCE plus the given loss terms."""
    chosen = [PARTS[part] for part in parts]
    return {
        "name": "WeightedSumLoss",
        "losses": [INFO_NCE, *(term for term, _ in chosen)],
        "weights": [1.0, *(w for _, w in chosen)],
    }


def row(parts: list[str], artifacts: Path, seed: int) -> list[float]:
    """Return R@1 of caption and image retrieval, each without and with re-ranking, in percent; train unless cached."""
    values = parameters.load(ROOT / "params.yaml", [RECIPE])
    changed = {"seed": seed, "train_embedding": {"phases": {0: {"loss": loss(parts)}}}}
    sections = parameters.validate(parameters.merge(values, changed), catalog.configurable_components().values())
    params = sections[COMPONENT.name]
    assert isinstance(params, TrainEmbeddingParams)
    key: dict[str, Any] = {
        "params": params.model_dump(mode="json"),
        "code": installed_key(COMPONENT),
    }
    key |= {name: artifact_hash(artifacts / name) for name in ("dataset", "features", "text")}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    file = artifacts.parent / "ablation" / f"{digest}.json"
    if not file.is_file():
        recall = train(params, artifacts)
        file.parent.mkdir(exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(key | {"R@1": recall}, indent=2))
        partial.replace(file)
    cached: list[float] = json.loads(file.read_text())["R@1"]
    return cached


def train(params: TrainEmbeddingParams, artifacts: Path) -> list[float]:
    """Train in a temporary folder; return the values of :func:`row`."""
    dataset, features, text = (artifacts / name for name in ("dataset", "features", "text"))
    with tempfile.TemporaryDirectory() as folder:
        embedding, sorter = Path(folder) / "embedding", Path(folder) / "sorter"
        embedding.mkdir()
        save_sorter(sorter, BifocalSorter(), {})
        run(params, dataset=dataset, features=features, text=text, sorter=sorter, embedding=embedding)
        dev = ImageCaptionPairs(read_dataset(dataset).split("val"), FeatureStore(features), TextStore(text))
        model: Any = load_model(embedding)
        images, captions = embed(model, dev)
    reports = [
        summarize(retrieval_ranks(images, captions, dev.image_of_caption, rerank=rerank), (1,))
        for rerank in (False, True)
    ]
    return [report[direction]["R@1"] for direction in BARS for report in reports]


def table(recalls: dict[str, list[list[float]]]) -> str:
    """Return a Markdown table: mean and standard deviation over the seeds."""
    rows = [["system", "caption R@1", "re-ranked", "image R@1", "re-ranked"], ["---"] * 5]
    for name, seeds in recalls.items():
        means, deviations = np.mean(seeds, axis=0), np.std(seeds, axis=0, ddof=1 if len(seeds) > 1 else 0)
        rows.append([name, *(f"{mean:.1f} ± {spread:.1f}" for mean, spread in zip(means, deviations, strict=True))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Train every system with every seed, write the table, and report the best system."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifacts", type=Path, default=ROOT / "runs" / "flickr8k" / "smile" / "artifacts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--backwards", action="store_true", help="start with the last training")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "flickr8k.md")
    options = parser.parse_args()
    recalls: dict[str, list[list[float]]] = {name: [] for name in SYSTEMS}
    trainings = [(seed, name) for seed in options.seeds for name in SYSTEMS]
    for seed, name in reversed(trainings) if options.backwards else trainings:
        started = time.monotonic()
        values = row(SYSTEMS[name], options.artifacts, seed)
        recalls[name].append(values)
        minutes = (time.monotonic() - started) / 60
        cells = "  ".join(f"{value:5.1f}" for value in values)
        print(f"{name:<28} seed {seed}  {cells}  {minutes:.1f} min", flush=True)
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(
        "# Flickr8k: an ablation\n\nTraining on 6,000 photographs; R@1 in percent on the 1,000 of the dev list, which "
        f"also chooses the epoch; mean and standard deviation of {len(options.seeds)} seeds.\nWritten by `python -m "
        f"benchmarks run quality.flickr8k`. {measured()}\n\n{table(recalls)}\n"
    )
    print(table(recalls))
    report = Report("quality.flickr8k")
    for direction, bar in BARS.items():
        column = 2 * list(BARS).index(direction)
        name, value = max(
            ((name, float(np.mean(seeds, axis=0)[column + 1])) for name, seeds in recalls.items()),
            key=lambda pair: pair[1],
        )
        label = f"{direction.replace('_', ' ')} R@1, re-ranked, best system"
        report.add(label, value, "%", at_least=bar, reference=f"{name}, {len(options.seeds)} seeds")
    report.write()


if __name__ == "__main__":
    main()
