"""Small twins of the systems on the drawn scenes: their training, and their measures."""

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import ROOT
from benchmarks.leaderboard_page import RECALLS
from benchmarks.tuning import Training, stored, with_trial
from bifocal.datasets import read_dataset
from bifocal.evaluation import PointingGame, SemanticRetrieval
from bifocal.evaluation.base import Subject
from bifocal.features import FeatureStore
from bifocal.models import load_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training.validators import model_ranks, recall_metrics
from components import catalog
from runtime import parameters
from runtime.artifacts import MANIFEST
from runtime.stage import Job, run_stage

SYSTEMS = {
    "SMILE + InfoNCE": "scenes/smile_infonce",
    "BEAN + InfoNCE": "scenes/bean_infonce",
    "BEAN + SoDeep + InfoNCE": "scenes/bean_sodeep_infonce",
    "multi-level grounding": "scenes/multi_level",
    "structure-preserving": "scenes/structure_preserving",
    "semantic retrieval (V)": "scenes/semantic_visual",
    "semantic retrieval (V+T)": "scenes/semantic",
    "WSABIE": "scenes/wsabie",
    "order-free": "scenes/order_free",
    "CCA": "scenes/cca",
}
VISUAL = "semantic retrieval (V)"
"""Trains without texts, so it has no retrieval metrics, only NDCG."""
DIRECTIONS, KS = ("caption_retrieval", "image_retrieval"), (1, 5, 10)
STAGES = (
    "seed",
    "prepare_dataset",
    "extract_features",
    "vectorize_captions",
    "pretrain_sorter",
    "train_embedding",
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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
        [values["seed"], values[stage], {name: path.name for name, path in inputs.items()}],
        sort_keys=True,
    )
    path = home / f"{output}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
    if not (path / MANIFEST).is_file():
        section = parameters.validate(values, [*catalog.configurable_components().values()])[stage]
        started = time.process_time()
        run_stage(Job(component, section, inputs, {output: path}, values))
        (home / f"{path.name}.seconds").write_text(f"{time.process_time() - started}\n")
    return path


def train(name: str, recipe: str, settings: Sequence[str], home: Path) -> tuple[Artifacts, float]:
    """Train a system with the values of its recipe; return its artifacts and the CPU minutes of
    training."""
    return train_values(name, values_of(recipe, settings), home)


def values_of(recipe: str, settings: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of all stages; ``recipe`` is a name below ``recipes``, or a file."""
    file = Path(recipe) if recipe.endswith(".yaml") else ROOT / "recipes" / f"{recipe}.yaml"
    return parameters.load(ROOT / "params.yaml", [file], settings)


def recipe_of(name: str) -> str:
    """Return the recipe of a row: of a system, or a file of the user."""
    if name not in SYSTEMS and not (name.endswith(".yaml") and Path(name).is_file()):
        raise ValueError(f"{name} is neither a file .yaml nor a system: {', '.join(SYSTEMS)}")
    return SYSTEMS.get(name, name)


def train_values(
    name: str, values: Mapping[str, Any], home: Path, seed: int | None = None
) -> tuple[Artifacts, float]:
    """Train a system; ``seed`` changes only the training."""
    shared = make_inputs(values, home)
    embedding = make(
        "train_embedding",
        {**values, "seed": values["seed"] if seed is None else seed},
        shared,
        home,
    )
    inputs = Artifacts(shared["dataset"], shared["features"], shared["text"], embedding)
    return inputs, float((home / f"{embedding.name}.seconds").read_text()) / 60


def make_inputs(values: Mapping[str, Any], home: Path) -> dict[str, Path]:
    """Return the dataset, the features, the texts and the sorter of a system: trainings at once
    must not make them."""
    dataset = make("prepare_dataset", values, {}, home)
    return {
        "dataset": dataset,
        "features": make("extract_features", values, {"dataset": dataset}, home),
        "text": make("vectorize_captions", values, {"dataset": dataset}, home),
        "sorter": make("pretrain_sorter", values, {}, home),
    }


def measure(artifacts: Artifacts, split: str, *, texts: bool) -> dict[str, Any]:
    """Return the measures of a trained system on a split, and the sum of hits of each image under
    ``images``.

    Args:
        texts: whether the system was trained with texts.
    """
    model, dataset = load_model(artifacts.embedding, DEVICE), read_dataset(artifacts.dataset)
    features, text = FeatureStore(artifacts.features), TextStore(artifacts.text)
    subject = Subject(model, dataset, split, features, text, load_vectorizer(artifacts.text))
    measures: dict[str, Any] = {"parameters": sum(weight.numel() for weight in model.parameters())}
    if texts:
        measures |= recalls_of(model, subject.pairs)
    semantic = SemanticRetrieval()(subject).metrics
    if semantic:
        measures["NDCG"] = semantic["semantic"]["NDCG_area"]
    if split == "test" and (pointing := PointingGame()(subject).metrics):
        measures["pointing"] = pointing["pointing"]["accuracy"]
    return measures


def recalls_of(model: Any, pairs: ImageCaptionPairs) -> dict[str, Any]:
    """Return R@K of both directions, their sum, and each image's part of the sum under ``images``,
    in percent."""
    ranks = model_ranks(model, pairs)
    recalls, image = recall_metrics(ranks), pairs.image_of_caption
    hits = [torch.stack([side.hits(k) for k in KS]).sum(dim=0) for side in ranks]
    of_captions = torch.zeros(len(hits[0]), dtype=torch.float64).index_add(0, image, hits[1])
    images = (100 * (hits[0] + of_captions / image.bincount())).tolist()
    return dict(zip(RECALLS, recalls.values(), strict=False)) | {
        "recall sum": recalls["recall_sum"],
        "images": images,
    }


def measures_of(
    settings: Sequence[str], home: Path, training: Training, end: float
) -> dict[str, Any] | None:
    """Return the stored measures of a training; if there are none before the time ``end``, train
    and measure."""
    changed = with_trial(values_of(recipe_of(training.name), settings), training.trial)

    def compute() -> dict[str, Any]:
        artifacts, minutes = train_values(training.name, changed, home, training.seed)
        device = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
        measures = measure(artifacts, training.split, texts=training.name != VISUAL)
        return measures | {"minutes": minutes, "device": device}

    key = {stage: changed.get(stage) for stage in STAGES}
    return stored(measures_file(training, home), key, compute if time.time() < end else None)


def measures_file(training: Training, home: Path) -> Path:
    """Return the file that stores the measures of a training."""
    name = re.sub(r"\W", "_", training.name)
    return home / "rows" / f"{name}-{training.trial}-{training.split}-{training.seed}.json"
