"""What does each system give on the embedded scenes?

    python -m benchmarks run quality.leaderboard [--only SMILE BEAN] [--minutes 60] [--trials 1] [--seeds 1]

Trains small twins of the systems and writes docs/leaderboard.md. Every system has the same search, of leaderboard.yaml:
the trial with the best validation images is trained with several seeds and measured on the test images. Finished
trainings are kept in runs/leaderboard, and none starts after --minutes: run the command again to continue. Twins share
artifacts with equal parameters and inputs. Minutes are CPU time of one training.
"""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import ROOT, Report
from benchmarks.scenes_page import RECALLS, Tuned, page
from benchmarks.tuning import Search, Trial, read_search, stored, with_trial
from bifocal.baselines import caption_blocks, fit_cca
from bifocal.datasets import read_dataset
from bifocal.evaluation import PointingGame, SemanticRetrieval
from bifocal.evaluation.base import Subject
from bifocal.features import FeatureStore
from bifocal.metrics import center_baseline, chance_report
from bifocal.models import build_model, load_model, save_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training.validators.recall import model_ranks, recall_metrics
from components import catalog
from runtime import parameters
from runtime.artifacts import MANIFEST
from runtime.stage import run_stage

HOME = ROOT / "runs" / "leaderboard"
MAX_MINUTES, MIN_TIMES_CHANCE = 240.0, 10.0
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
VISUAL = "semantic retrieval (V)"
"""Trains without texts, so it has no retrieval metrics, only NDCG."""
DIRECTIONS, KS = ("caption_retrieval", "image_retrieval"), (1, 5, 10)
STAGES = ("seed", "prepare_dataset", "extract_features", "vectorize_captions", "pretrain_sorter", "train_embedding")
SEARCH = Path(__file__).with_suffix(".yaml")


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
        started = time.process_time()
        run_stage(component, section, inputs, {output: path}, values)
        (home / f"{path.name}.seconds").write_text(f"{time.process_time() - started}\n")
    return path


def train(name: str, recipe: str, settings: Sequence[str], home: Path) -> tuple[Artifacts, float]:
    """Train a system with the values of its recipe; return its artifacts and the CPU minutes of training."""
    return train_values(name, values_of(recipe, settings), home)


def values_of(recipe: str, settings: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of all stages."""
    return parameters.load(ROOT / "params.yaml", [ROOT / "recipes" / f"{recipe}.yaml"], settings)


def train_values(name: str, values: Mapping[str, Any], home: Path, seed: int | None = None) -> tuple[Artifacts, float]:
    """Train a system; ``seed`` changes only the training."""
    dataset = make("prepare_dataset", values, {}, home)
    shared = {
        "dataset": dataset,
        "features": make("extract_features", values, {"dataset": dataset}, home),
        "text": make("vectorize_captions", values, {"dataset": dataset}, home),
    }
    if name == "CCA":
        return correlate(shared, values["train_embedding"]["model"]["dim"], home)
    inputs = shared | {"sorter": make("pretrain_sorter", values, {}, home)}
    embedding = make("train_embedding", {**values, "seed": values["seed"] if seed is None else seed}, inputs, home)
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
    started = time.process_time()
    model = build_model(ref, feature_dim=features.dim, text_dim=text.dim, text_format=text.format.name)
    fit_cca(model, caption_blocks(pairs))
    minutes = (time.process_time() - started) / 60
    folder = home / "cca"
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, model)
    return Artifacts(**shared, embedding=folder), minutes


def measure(artifacts: Artifacts, split: str, *, texts: bool) -> dict[str, Any]:
    """Return the measures of a trained system on a split, and the sum of hits of each image under ``images``.

    Args:
        texts: whether the system was trained with texts.
    """
    model, dataset = load_model(artifacts.embedding), read_dataset(artifacts.dataset)
    features, text = FeatureStore(artifacts.features), TextStore(artifacts.text)
    subject = Subject(model, dataset, split, features, text, load_vectorizer(artifacts.text))
    measures: dict[str, Any] = {"parameters": sum(weight.numel() for weight in model.parameters())}
    if texts:
        ranks = model_ranks(model, subject.pairs)
        recalls = recall_metrics(ranks)
        measures |= dict(zip(RECALLS, recalls.values(), strict=False)) | {"recall sum": recalls["recall_sum"]}
        image = subject.pairs.image_of_caption
        hits = [torch.stack([side.hits(k) for k in KS]).sum(dim=0) for side in ranks]
        of_captions = torch.zeros(len(hits[0]), dtype=torch.float64).index_add(0, image, hits[1])
        measures["images"] = (100 * (hits[0] + of_captions / image.bincount())).tolist()
    semantic = SemanticRetrieval()(subject).metrics
    if semantic:
        measures["NDCG"] = semantic["semantic"]["NDCG_area"]
    if split == "test" and (pointing := PointingGame()(subject).metrics):
        measures["pointing"] = pointing["pointing"]["accuracy"]
    return measures


def tune(name: str, search: Search, settings: Sequence[str], home: Path, in_time: Callable[[], bool]) -> Tuned:
    """Try the trials of a system, and train the best one with every seed; stored measures are not computed again."""
    values = values_of(SYSTEMS[name], settings)
    # CCA has no steps and no loss to tune, and no seed.
    trials, seeds = (search.trials[:1], search.seeds[:1]) if name == "CCA" else (search.trials, search.seeds)
    tuned, file = Tuned(), "".join(letter if letter.isalnum() else "_" for letter in name)

    def run(trial: Trial, split: str, seed: int) -> dict[str, Any] | None:
        changed = with_trial(values, trial)

        def compute() -> dict[str, Any]:
            artifacts, minutes = train_values(name, changed, home, seed)
            return measure(artifacts, split, texts=name != VISUAL) | {"minutes": minutes}

        path = home / "rows" / f"{file}-{search.trials.index(trial)}-{split}-{seed}.json"
        return stored(path, {key: changed.get(key) for key in STAGES}, compute if in_time() else None)

    for trial in trials:
        if found := run(trial, "val", seeds[0]):
            tuned.validation[trial] = found["NDCG" if name == VISUAL else "recall sum"]
    if len(tuned.validation) == len(trials):
        tuned.chosen = max(trials, key=lambda trial: tuned.validation[trial])
        tuned.seeds = {seed: found for seed in seeds if (found := run(tuned.chosen, "test", seed))}
    return tuned


def chance(home: Path, settings: Sequence[str]) -> dict[str, float]:
    """Return the measures of equal scores; for pointing, the accuracy of the image center."""
    test = read_dataset(make("prepare_dataset", values_of(SYSTEMS["CCA"], settings), {}, home)).split("test")
    row_of = {image_id: row for row, image_id in enumerate(test.images["image_id"])}
    report = chance_report(torch.tensor([row_of[image_id] for image_id in test.captions["image_id"]]), KS)
    sizes = test.images.set_index("image_id").loc[test.phrases["image_id"], ["width", "height"]].to_numpy(float)
    recalls = dict(zip(RECALLS, (report[way][f"R@{k}"] for way in DIRECTIONS for k in KS), strict=True))
    center = 100 * float(center_baseline(sizes, list(test.phrases["boxes"])).mean())
    return recalls | {"recall sum": sum(recalls.values()), "pointing": center}


def main() -> None:
    """Tune and train every system, and write the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    arguments.add_argument("--minutes", type=float, default=MAX_MINUTES, help="start no training after this time")
    arguments.add_argument("--trials", type=int, help="the first trials of the search; 1 is the recipe")
    arguments.add_argument("--seeds", type=int, nargs="+")
    arguments.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    arguments.add_argument("--home", type=Path, default=HOME)
    arguments.add_argument("--output", type=Path, default=ROOT / "docs" / "leaderboard.md")
    options = arguments.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{(options.home / 'mlflow.db').resolve()}")
    search = read_search(SEARCH)
    search = replace(search, trials=search.trials[: options.trials], seeds=tuple(options.seeds or search.seeds))
    started = time.monotonic()

    def in_time() -> bool:
        return bool(time.monotonic() - started < 60 * options.minutes)

    results = {name: tune(name, search, options.settings, options.home, in_time) for name in options.only}
    floor = chance(options.home, options.settings)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page(results, search, floor))
    report = Report("quality.leaderboard")
    worst = [
        measures[f"{way} R@1"] / floor[f"{way} R@1"]
        for tuned in results.values()
        for measures in tuned.seeds.values()
        for way in ("caption", "image")
        if f"{way} R@1" in measures
    ]
    if worst:
        report.add(
            "worst R@1, relative to chance", min(worst), at_least=MIN_TIMES_CHANCE, reference="docs/leaderboard.md"
        )
    report.add("wall time of the last call", (time.monotonic() - started) / 60, "min", at_most=MAX_MINUTES)
    report.write()


if __name__ == "__main__":
    main()
