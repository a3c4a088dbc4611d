"""What does each system give on photographs, with the same stored features?

    python -m benchmarks run quality.leaderboard_flickr8k [--only SMILE BEAN] [--seeds 1 2 3] [--minutes 300]

Trains every row of leaderboard_flickr8k.yaml with every seed on Flickr8k and writes docs/leaderboard_flickr8k.md. Rows
share artifacts with equal parameters and inputs, in runs/leaderboard_flickr8k. A finished training is never repeated,
and none starts after --minutes: run the command again to continue. The table holds only finished trainings. CPU
minutes measure only the training. The latency measures one caption, from its words to the scores of all images. The
gain of a part is its recall sum less the recall sum of the baseline. Both have the same seeds.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.nn.functional import normalize

from benchmarks.common import ROOT, Report
from benchmarks.leaderboard_page import BASELINE, CORRECTED, NDCG, QUICK, Row, gains, page
from benchmarks.scene_systems import make
from bifocal.datasets import read_dataset
from bifocal.evaluation.semantic.semantic_retrieval import semantic_metrics
from bifocal.features import FeatureStore
from bifocal.hubness.bank import HubnessBank
from bifocal.metrics import retrieval_ranks
from bifocal.models import load_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.models.embedding import dual_encoder, embed, embed_images, is_dual_encoder
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training.validators.recall import model_ranks, recall_metrics
from runtime import parameters

HOME = ROOT / "runs" / "leaderboard_flickr8k"
ROWS_FILE = Path(__file__).with_suffix(".yaml")
STAGES = ("prepare_dataset", "extract_features", "vectorize_captions", "pretrain_sorter", "train_embedding")
GROUPS = ("systems", "parts")
TIMED_QUERIES, MAX_HOURS = 50, 5.0
MIN_GAIN = 2.0
PAPERS_TERMS = (QUICK, "baseline, BEAN's pooling", "baseline, structure term")


def read_rows(file: Path = ROWS_FILE) -> list[Row]:
    """Return the rows of the leaderboard, with the parameters of each."""
    board = yaml.safe_load(file.read_text())
    base = parameters.load(ROOT / "params.yaml", [ROOT / board["features"]])
    return [
        Row(group, name, row["differs"], parameters.merge(base, row["overlay"]))
        for group in GROUPS
        for name, row in board[group].items()
    ]


def train(row: Row, seed: int, home: Path) -> tuple[dict[str, Path], float]:
    """Run the stages of a row that have not run yet; return the artifacts, and the CPU minutes of the training.

    The seed changes only the training: all seeds share dataset, features and text.
    """
    dataset = make("prepare_dataset", row.values, {}, home)
    inputs = {
        "dataset": dataset,
        "features": make("extract_features", row.values, {"dataset": dataset}, home),
        "text": make("vectorize_captions", row.values, {"dataset": dataset}, home),
        "sorter": make("pretrain_sorter", row.values, {}, home),
    }
    started = time.process_time()
    embedding = make("train_embedding", {**row.values, "seed": seed}, inputs, home)
    # Rows with equal parameters share a training.
    file = home / f"{embedding.name}.cpu_minutes"
    if not file.is_file():
        file.write_text(f"{(time.process_time() - started) / 60}\n")
    return inputs | {"embedding": embedding}, float(file.read_text())


def result(row: Row, seed: int, home: Path, *, may_train: bool) -> dict[str, float] | None:
    """Return the measures of a row with one seed; None if they are not stored and ``may_train`` is false."""
    name = "".join(letter if letter.isalnum() else "_" for letter in row.name)
    file = home / "rows" / f"{name}-{seed}.json"
    key = {stage: row.values[stage] for stage in STAGES}
    if file.is_file():
        stored: dict[str, Any] = json.loads(file.read_text())
        if stored["parameters"] == key:
            measures: dict[str, float] = stored["measures"]
            return measures
    if not may_train:
        return None
    artifacts, minutes = train(row, seed, home)
    measures = measure(artifacts) | {"cpu_minutes": minutes}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"parameters": key, "measures": measures}, indent=1) + "\n")
    return measures


def measure(artifacts: Mapping[str, Path]) -> dict[str, float]:
    """Return recall, NDCG, number of trained parameters, dimension and latency of a trained row, on the split "val"."""
    model: Any = load_model(artifacts["embedding"])
    dataset = read_dataset(artifacts["dataset"])
    dev = dataset.split("val")
    pairs = ImageCaptionPairs(dev, FeatureStore(artifacts["features"]), TextStore(artifacts["text"]))
    measures = recall_metrics(model_ranks(model, pairs))
    bank = HubnessBank.read(artifacts["embedding"])
    if bank is not None:
        images, captions = embed(dual_encoder(model), pairs)
        biases = bank.image_bias(images.numpy()), bank.caption_bias(captions.numpy())
        by_image, by_caption = (torch.from_numpy(bias) for bias in biases)
        ranks = retrieval_ranks(images, captions, pairs.image_of_caption, biases=(by_image, by_caption))
        measures[CORRECTED] = recall_metrics(ranks)["recall_sum"]
    measures["parameters_millions"] = sum(weight.numel() for weight in model.parameters()) / 1e6
    measures["dim"] = float(model.image_encoder.dim)
    if is_dual_encoder(model):
        images = normalize(embed_images(model, pairs.image_batches(256)), dim=1)
        measures[NDCG] = semantic_metrics(images, dataset, dev, seed=0)[0]["NDCG_area"]
        measures["query_ms"] = query_milliseconds(model, pairs, artifacts["text"], list(dev.captions["text"]))
    return measures


def query_milliseconds(model: Any, pairs: ImageCaptionPairs, text: Path, captions: Sequence[str]) -> float:
    """Return the median time from a caption's words to the scores of all images, on one thread."""
    vectorizer, images = load_vectorizer(text), embed_images(model, pairs.image_batches(256))
    threads, times = torch.get_num_threads(), []
    torch.set_num_threads(1)
    with torch.inference_mode():
        for caption in captions[: TIMED_QUERIES + 5]:
            started = time.perf_counter()
            images @ model.embed_captions(vectorizer.vectorize([caption]))[0]
            times.append(time.perf_counter() - started)
    torch.set_num_threads(threads)
    return 1000 * statistics.median(times[5:])


def main() -> None:
    """Train the rows that are not trained yet, and write the table."""
    rows = read_rows()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[row.name for row in rows], default=[row.name for row in rows])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--minutes", type=float, default=60 * MAX_HOURS, help="start no training after this time")
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "leaderboard_flickr8k.md")
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{(options.home / 'mlflow.db').resolve()}")
    started = time.monotonic()
    results: dict[str, dict[int, dict[str, float]]] = {row.name: {} for row in rows}
    for seed in options.seeds:
        for row in rows:
            in_time = time.monotonic() - started < 60 * options.minutes
            measures = result(row, seed, options.home, may_train=in_time and row.name in options.only)
            if measures is not None:
                results[row.name][seed] = measures
                print(f"{row.name}, seed {seed}: {json.dumps(measures)}", flush=True)
    text = page(rows, results, yaml.safe_load(ROWS_FILE.read_text())["published"])
    options.output.write_text(text)
    print(text)
    report = Report("quality.leaderboard_flickr8k")
    for name, seeds in results.items():
        if seeds:
            value = statistics.mean(seed["recall_sum"] for seed in seeds.values())
            report.add(f"recall sum, {name}", value, "%", reference=f"seeds: {len(seeds)}")
    for name in PAPERS_TERMS:
        if values := gains(results, name):
            label = f"gain over the baseline in recall sum, {name.removeprefix(f'{BASELINE}, ')}"
            report.add(label, statistics.mean(values), "%", at_least=MIN_GAIN, reference=f"seeds: {len(values)}")
    report.write()


if __name__ == "__main__":
    main()
