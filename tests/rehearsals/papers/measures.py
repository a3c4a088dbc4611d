"""Measures of a rehearsed recipe with their 95 % intervals and chance levels, from the artifacts of
its stages."""

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
from bifocal.evaluation.semantic.human_triplets import fit_tf_idf
from bifocal.evaluation.semantic.semantic_retrieval import RESULTS
from bifocal.features.image_files import open_features
from bifocal.metrics import area_under, semantic_curves
from bifocal.metrics.bootstrap import mean_interval
from bifocal.metrics.ranking.semantic_relevance import image_vectors, relevance
from bifocal.models import load_model
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer

RESAMPLES = 1000
Z = 1.96


class Measure(NamedTuple):
    """A value in percent, or a correlation times 100, the low end of its 95 % interval, and its
    chance level."""

    value: float
    low: float
    chance: float

    @property
    def bar(self) -> float:
        """Three times chance, above which the interval must lie."""
        return 3 * self.chance


def measure(name: str, folders: Mapping[str, Path]) -> Measure:
    """Return the measure ``name``: a dotted name of ``metrics.json`` or one of the following.

    - ``semantic.NDCG_area``: the value in ``metrics.json``, with an interval over the queries.
    - ``semantic.above_random``: NDCG minus a random order's NDCG; its chance level is 0.
    - ``semantic.gain``: NDCG minus the NDCG of the embedding in the folder ``baseline``, with the
      interval of the difference; its chance level is 0.
    - ``ranking_head.test``.
    """
    if name in ("semantic.NDCG_area", "semantic.above_random"):
        areas = semantic_areas(folders, "embedding")
        chance = json.loads((folders["metrics"] / "metrics.json").read_text())["semantic"][
            "chance"
        ]["NDCG_area"]
        return (
            _mean(areas, chance)
            if name == "semantic.NDCG_area"
            else _mean(areas - chance, chance=0.0)
        )
    if name == "semantic.gain":
        return _mean(
            semantic_areas(folders, "embedding") - semantic_areas(folders, "baseline"), chance=0.0
        )
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
        return Measure(
            values[key], metrics["intervals"][group][key]["low"], metrics["chance"][group][key]
        )
    chance = values["chance"].get(key, 0.0)
    # The phrases of an image are not independent: count images.
    count = len(read_dataset(folders["dataset"]).split("test").images)
    return Measure(values[key], _wilson_low(values[key], count), chance)


def semantic_areas(folders: Mapping[str, Path], embedding: str) -> NDArray[np.float64]:
    """Return the area under NDCG@R of each test image as the query, in percent: the paper's NDCG is
    their mean.

    Args:
        embedding: name of the folder with the model.

    Shape:
        (N,)
    """
    scores, similar = _semantic_scores(folders, embedding)
    rs = [r for r in RESULTS if r < len(scores)]
    rows = torch.arange(len(scores)).split(1)
    curves = [semantic_curves(scores[row], similar[row], row, rs)[0] for row in rows]
    return np.array([100 * area_under(curve) for curve in curves])


def _semantic_scores(
    folders: Mapping[str, Path], embedding: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cosines of the test images (N, N), and the relevance of each to each (N, N)."""
    dataset = read_dataset(folders["dataset"])
    subject = Subject(
        load_model(folders[embedding]),
        dataset,
        "test",
        open_features(folders["features"], dataset),
        TextStore(folders["text"]),
        load_vectorizer(folders["text"]),
    )
    assert subject.image_embeddings is not None
    images = normalize(subject.image_embeddings, dim=1)
    vectors = image_vectors(fit_tf_idf(subject.dataset, subject.split), subject.split)
    return images @ images.T, relevance(vectors, torch.arange(len(images)))


def _mean(values: NDArray[np.float64], chance: float) -> Measure:
    """Return the mean of a value per image, with its interval over resampled images."""
    low, _ = mean_interval(
        values, [str(row) for row in range(len(values))], resamples=RESAMPLES, seed=0
    )
    return Measure(float(values.mean()), low, chance)


def _ranking_head(folder: Path) -> Measure:
    """Return the test metric of a head with its interval over resampled images."""
    from sklearn.metrics import average_precision_score

    report = json.loads((folder / "metrics.json").read_text())
    table = pd.read_parquet(folder / "predictions.parquet").dropna(subset=["truth"])

    def value(rows: pd.DataFrame) -> float:
        if report["measure"] == "spearman":
            return float(rows["loss"].corr(rows["truth"], method="spearman"))
        present = [part for _, part in rows.groupby("label") if part["truth"].any()]
        return float(
            np.mean([average_precision_score(part["truth"], part["loss"]) for part in present])
        )

    groups = {group: part for group, part in table.groupby("group")}
    random = np.random.default_rng(0)
    names = np.array(sorted(groups))
    draws: list[NDArray[Any]] = [random.choice(names, len(names)) for _ in range(RESAMPLES // 10)]
    low = np.percentile(
        [value(pd.concat([groups[name] for name in drawn])) for drawn in draws], 2.5
    )
    chance = 0.0 if report["measure"] == "spearman" else float(table["truth"].mean())
    return Measure(100 * report["loss"]["test"], 100 * float(low), 100 * chance)


def _wilson_low(percent: float, count: int) -> float:
    """Return the low end of Wilson's 95 % interval of a percentage over ``count`` trials."""
    share = percent / 100
    center = share + Z**2 / (2 * count)
    margin = Z * np.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return float(100 * (center - margin) / (1 + Z**2 / count))
