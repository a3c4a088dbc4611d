"""What does each system give on the embedded scenes?

    python -m benchmarks run quality.leaderboard [--only SMILE BEAN] [--set prepare_dataset.corpus.train=200]

Trains small twins of the systems and writes docs/leaderboard.md. Twins share artifacts with equal parameters and
inputs, in runs/leaderboard. Systems that cannot be trained are listed below the table with the reason. Minutes are wall
time of only the training.
"""

import argparse
import hashlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import ROOT, Report, measured
from bifocal.baselines import caption_blocks, fit_cca
from bifocal.datasets import read_dataset
from bifocal.evaluation import PointingGame, Retrieval, SemanticRetrieval
from bifocal.evaluation.base import Subject
from bifocal.features import FeatureStore
from bifocal.metrics import center_baseline, chance_report
from bifocal.models import build_model, load_model, save_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from components import catalog
from runtime import parameters
from runtime.artifacts import MANIFEST
from runtime.stage import run_stage

HOME = ROOT / "runs" / "leaderboard"
MAX_MINUTES, MIN_TIMES_CHANCE = 40.0, 10.0
SYSTEMS = {
    "SMILE": "scenes/smile",
    "BEAN": "scenes/bean",
    "BEAN + SoDeep": "scenes/bean_sodeep",
    "multi-level grounding": "scenes/multi_level",
    "structure-preserving": "scenes/structure_preserving",
    "semantic retrieval (V)": "scenes/semantic_visual",
    "semantic retrieval (V+T)": "scenes/semantic",
    "WSABIE": "scenes/wsabie",
    "order-free": "scenes/order_free",
    "CCA": "scenes/wsabie",
}
DIFFERENCES = {
    "SMILE": "InfoNCE added; grid cells, SRU of 2 layers",
    "BEAN": "InfoNCE added; frozen backbone, SRU of 2 layers",
    "BEAN + SoDeep": "as BEAN; analytic sorter",
    "multi-level grounding": "one level; gamma_2 is 40; small ELMo",
    "structure-preserving": "mean of grid cells; Adam",
    "semantic retrieval (V)": "linear map of the mean cell, no R-MAC",
    "semantic retrieval (V+T)": "linear map of the mean cell, no R-MAC",
    "WSABIE": "mean of grid cells; Adam",
    "order-free": "a baseline, of no paper",
    "CCA": "mean of grid cells, tf-idf",
}
"""What a row has in place of the system of the paper whose name it bears."""
VISUAL = "semantic retrieval (V)"
"""Trains without texts, so it has no retrieval metrics, only NDCG."""
DIRECTIONS, KS = ("caption_retrieval", "image_retrieval"), (1, 5, 10)
COLUMNS = (
    "system",
    "differs from the paper",
    "parameters",
    "minutes",
    *(f"{way} R@{k}" for way in ("caption", "image") for k in (1, 5, 10)),
    "caption median",
    "image median",
    "pointing",
    "NDCG",
)


@dataclass(frozen=True)
class Artifacts:
    """Artifact folders of one system."""

    dataset: Path
    features: Path
    text: Path
    embedding: Path


def make(stage: str, values: Mapping[str, Any], inputs: Mapping[str, Path], home: Path) -> Path:
    """Return the artifact of a stage; run the stage if the artifact does not exist."""
    component = catalog.configurable_components()[stage]
    (output,) = component.outputs
    key = json.dumps(
        [values["seed"], values[stage], {name: path.name for name, path in inputs.items()}], sort_keys=True
    )
    path = home / f"{output}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
    if not (path / MANIFEST).is_file():
        section = parameters.validate(values, [*catalog.configurable_components().values()])[stage]
        started = time.monotonic()
        run_stage(component, section, inputs, {output: path}, values)
        (home / f"{path.name}.seconds").write_text(f"{time.monotonic() - started}\n")
    return path


def train(name: str, recipe: str, settings: Sequence[str], home: Path) -> tuple[Artifacts, float]:
    """Train a system; return its artifacts and the minutes of training."""
    values = parameters.load(ROOT / "params.yaml", [ROOT / "recipes" / f"{recipe}.yaml"], settings)
    dataset = make("prepare_dataset", values, {}, home)
    shared = {
        "dataset": dataset,
        "features": make("extract_features", values, {"dataset": dataset}, home),
        "text": make("vectorize_captions", values, {"dataset": dataset}, home),
    }
    if name == "CCA":
        return correlate(shared, values["train_embedding"]["model"]["dim"], home)
    embedding = make("train_embedding", values, shared | {"sorter": make("pretrain_sorter", values, {}, home)}, home)
    return Artifacts(**shared, embedding=embedding), float((home / f"{embedding.name}.seconds").read_text()) / 60


def correlate(shared: Mapping[str, Path], dim: int, home: Path) -> tuple[Artifacts, float]:
    """Fit canonical correlation analysis on the features and texts of the linear twin."""
    features, text = FeatureStore(shared["features"]), TextStore(shared["text"])
    pairs = ImageCaptionPairs(read_dataset(shared["dataset"]).split("train"), features, text)
    ref = {
        "name": "TwoBranchModel",
        "dim": min(dim, features.dim, text.dim),
        "image_encoder": "LinearEncoder",
        "text_encoder": "LinearEncoder",
    }
    started = time.monotonic()
    model = build_model(ref, feature_dim=features.dim, text_dim=text.dim, text_format=text.format.name)
    fit_cca(model, caption_blocks(pairs))
    minutes = (time.monotonic() - started) / 60
    folder = home / "cca"
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, model)
    return Artifacts(**shared, embedding=folder), minutes


def measure(artifacts: Artifacts, *, texts: bool) -> tuple[list[float], float]:
    """Return the metrics of a row, and its worst R@1 relative to chance.

    Args:
        texts: whether the system was trained with texts.
    """
    subject = Subject(
        load_model(artifacts.embedding),
        read_dataset(artifacts.dataset),
        "test",
        FeatureStore(artifacts.features),
        TextStore(artifacts.text),
        load_vectorizer(artifacts.text),
    )
    report = Retrieval(ks=KS)(subject).metrics
    recalls = [report[direction][f"R@{k}"] for direction in DIRECTIONS for k in KS]
    medians = [report[direction]["median_rank"] for direction in DIRECTIONS]
    values, above = recalls + medians, min(report[way]["R@1"] / report["chance"][way]["R@1"] for way in DIRECTIONS)
    if not texts:
        values, above = [math.nan] * len(values), math.inf
    pointing, semantic = PointingGame()(subject).metrics, SemanticRetrieval()(subject).metrics
    accuracy = pointing["pointing"]["accuracy"] if pointing else math.nan
    return [*values, accuracy, semantic["semantic"]["NDCG_area"] if semantic else math.nan], above


def floor(dataset: Path) -> list[Any]:
    """Return the row of chance levels; for pointing, the accuracy of the image center."""
    test = read_dataset(dataset).split("test")
    row_of = {image_id: row for row, image_id in enumerate(test.images["image_id"])}
    chance = chance_report(torch.tensor([row_of[image_id] for image_id in test.captions["image_id"]]), KS)
    sizes = test.images.set_index("image_id").loc[test.phrases["image_id"], ["width", "height"]].to_numpy(float)
    center = 100 * float(center_baseline(sizes, list(test.phrases["boxes"])).mean())
    recalls = [chance[direction][f"R@{k}"] for direction in DIRECTIONS for k in KS]
    medians = [chance[direction]["median_rank"] for direction in DIRECTIONS]
    return ["chance; the image center", "-", "-", "-", *recalls, *medians, center, math.nan]


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    cells = [
        ["-" if value != value else f"{value:.1f}" if isinstance(value, float) else str(value) for value in row]
        for row in rows
    ]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Train every system and write the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    arguments.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    arguments.add_argument("--home", type=Path, default=HOME)
    arguments.add_argument("--output", type=Path, default=ROOT / "docs" / "leaderboard.md")
    options = arguments.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{(options.home / 'mlflow.db').resolve()}")
    started, rows, missing, worst = time.monotonic(), [], [], float("inf")
    for name in options.only:
        try:
            artifacts, minutes = train(name, SYSTEMS[name], options.settings, options.home)
        except (ValueError, TypeError) as error:
            missing.append(f"- {name}: {str(error).splitlines()[-1].strip()}")
            continue
        metrics, above = measure(artifacts, texts=name != VISUAL)
        count = sum(weight.numel() for weight in load_model(artifacts.embedding).parameters())
        rows.append([name, DIFFERENCES[name], f"{count / 1e6:.2f} M", minutes, *metrics])
        worst = min(worst, above)
        print(" | ".join(str(value) for value in rows[-1]), flush=True)
    minutes = (time.monotonic() - started) / 60
    if rows:
        rows.append(floor(artifacts.dataset))
    text = "\n\n".join(
        [
            "# Leaderboard",
            f"Small twins of the systems on the drawn scenes, test split; written by `make leaderboard`. {measured()} "
            "R@K, pointing accuracy and NDCG in percent; median ranks from 1.",
            table(rows),
            *(["Not listed:\n\n" + "\n".join(missing)] if missing else []),
        ]
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text + "\n")
    print(text)
    report = Report("quality.leaderboard")
    report.add("worst R@1, relative to chance", worst, at_least=MIN_TIMES_CHANCE, reference="docs/leaderboard.md")
    report.add("wall time", minutes, "min", at_most=MAX_MINUTES)
    report.write()


if __name__ == "__main__":
    main()
