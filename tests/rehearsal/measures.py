"""Measures of a rehearsed recipe with their 95 % intervals and chance levels, from the artifacts of its stages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from bifocal.datasets import read_dataset
from bifocal.evaluation.base import Subject
from bifocal.evaluation.caption_proxies import fit_tf_idf
from bifocal.evaluation.comparison import mean_interval
from bifocal.features.image_files import open_features
from bifocal.metrics.ranking.semantic_relevance import image_vectors, relevance
from bifocal.models import load_model
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer

RESAMPLES = 1000
RELEVANT = 5
"""Images of the split that count as relevant to a query, by the tf-idf similarity of their captions."""
Z = 1.96


class Measure(NamedTuple):
    """A value in percent, or a correlation times 100, the low end of its 95 % interval, and its chance level."""

    value: float
    low: float
    chance: float

    @property
    def bar(self) -> float:
        """Three times chance, above which the interval must lie."""
        return 3 * self.chance


def measure(name: str, folders: Mapping[str, Path]) -> Measure:
    """Return the measure ``name``: a dotted name of ``metrics.json``, ``semantic.first`` or ``ranking_head.test``."""
    if name == "semantic.first":
        return first_is_relevant(folders)
    if name.startswith("ranking_head."):
        return _ranking_head(folders["ranking_metrics"])
    metrics = json.loads((folders["metrics"] / "metrics.json").read_text())
    group, _, key = name.partition(".")
    if group not in metrics:
        raise ValueError(f"{name}: evaluate gave no {group}; it gave {', '.join(sorted(metrics))}")
    values = metrics[group]
    if group == "pointing":
        return Measure(values["accuracy"], values["low"], values["random"])
    if group in ("caption_retrieval", "image_retrieval"):
        return Measure(values[key], metrics["intervals"][group][key]["low"], metrics["chance"][group][key])
    chance = values["chance"].get(key, 0.0)
    # The phrases of an image are not independent: count images.
    count = len(read_dataset(folders["dataset"]).split("test").images)
    return Measure(values[key], _wilson_low(values[key], count), chance)


def first_is_relevant(folders: Mapping[str, Path]) -> Measure:
    """Return how often the image that is nearest to a test image is one of its ``RELEVANT`` most relevant ones."""
    dataset = read_dataset(folders["dataset"])
    subject = Subject(
        load_model(folders["embedding"]),
        dataset,
        "test",
        open_features(folders["features"], dataset),
        TextStore(folders["text"]),
        load_vectorizer(folders["text"]),
    )
    assert subject.image_embeddings is not None
    images = normalize(subject.image_embeddings, dim=1)
    vectors = image_vectors(fit_tf_idf(subject.dataset, subject.split), subject.split)
    similar = relevance(vectors, torch.arange(len(images))).numpy()
    scores = (images @ images.T).numpy()
    np.fill_diagonal(similar, -np.inf)
    np.fill_diagonal(scores, -np.inf)
    threshold = np.sort(similar, axis=1)[:, -RELEVANT]
    nearest = scores.argmax(axis=1)
    hits = 100.0 * (similar[np.arange(len(images)), nearest] >= threshold)
    low, _ = mean_interval(hits, list(range(len(hits))), resamples=RESAMPLES, seed=0)
    chance = float((similar >= threshold[:, None]).mean()) * len(hits) / (len(hits) - 1)
    return Measure(float(hits.mean()), low, 100 * chance)


def _ranking_head(folder: Path) -> Measure:
    """Return the test metric of a head with its interval over resampled images."""
    from sklearn.metrics import average_precision_score

    report = json.loads((folder / "metrics.json").read_text())
    table = pd.read_parquet(folder / "predictions.parquet").dropna(subset=["truth"])

    def value(rows: pd.DataFrame) -> float:
        if report["measure"] == "spearman":
            return float(rows["loss"].corr(rows["truth"], method="spearman"))
        present = [part for _, part in rows.groupby("label") if part["truth"].any()]
        return float(np.mean([average_precision_score(part["truth"], part["loss"]) for part in present]))

    groups = {group: part for group, part in table.groupby("group")}
    random = np.random.default_rng(0)
    names = np.array(sorted(groups))
    draws: list[NDArray[Any]] = [random.choice(names, len(names)) for _ in range(RESAMPLES // 10)]
    low = np.percentile([value(pd.concat([groups[name] for name in drawn])) for drawn in draws], 2.5)
    chance = 0.0 if report["measure"] == "spearman" else float(table["truth"].mean())
    return Measure(100 * report["loss"]["test"], 100 * float(low), 100 * chance)


def _wilson_low(percent: float, count: int) -> float:
    """Return the low end of Wilson's 95 % interval of a percentage over ``count`` trials."""
    share = percent / 100
    center = share + Z**2 / (2 * count)
    margin = Z * np.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return float(100 * (center - margin) / (1 + Z**2 / count))
