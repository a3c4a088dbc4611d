"""How evaluate works."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch.nn.functional import normalize

from bifocal.batch import Pairs
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.localization.base import Localizer
from bifocal.metrics import chance_report, retrieval_intervals, summarize_folds
from bifocal.metrics.ranks import joined
from bifocal.models import load_model
from bifocal.plots import plot_rank_histogram, plot_recall
from bifocal.progress import say
from bifocal.registry import build
from bifocal.report.page import render
from bifocal.text import TextStore, load_vectorizer
from components.artifact import write_json
from components.evaluate.card import CARD, model_card
from components.evaluate.champion import champion_ranks, compare
from components.evaluate.evidence import write_evidence
from components.evaluate.figures import rank_table
from components.evaluate.measure import Measured, measure
from components.evaluate.modifiers import modifier_figures
from components.evaluate.pointing import can_point, embed_texts, model_encoder, point
from components.evaluate.report import Subject, make_page
from components.evaluate.spec import EvaluateParams
from components.tracking import log_figure, log_files

RANK_EDGES = (0, 1, 2, 3, 5, 10, 20, 50)


def run(
    params: EvaluateParams,
    *,
    dataset: Path,
    features: Path,
    text: Path,
    embedding: Path,
    metrics: Path,
    report: Path,
) -> dict[str, float]:
    """Write the figures, the ranks of every query, the curves, and the page that shows them."""
    model = load_model(embedding, "cuda" if torch.cuda.is_available() else "cpu")
    whole = read_dataset(dataset)
    split, store = whole.split(params.split), FeatureStore(features)
    measured = measure(
        model, Pairs(split, store, TextStore(text)), split.captions["caption_id"].to_numpy(), params.protocol
    )
    reader = load_vectorizer(text)
    localizer: Localizer | None = None
    if params.pointing is not None:
        localizer = build("bifocal.localization", params.pointing.name, **params.pointing.arguments)
    why_not = can_point(model, localizer, store, split)
    pointing = None if why_not or localizer is None else point(model, localizer, store, reader, split)
    if why_not:
        say(f"pointing: {why_not}")

    figures = _figures(params, measured)
    if pointing is not None:
        figures["pointing"] = pointing.report(params.resamples, params.seed)
    if measured.images is not None:
        images = normalize(measured.images, dim=1)
        figures["modifiers"] = modifier_figures(images, split, partial(embed_texts, model, reader), params.seed)
    write_json(metrics / "metrics.json", figures)
    ranks = write_evidence(metrics, whole, params.split, measured, pointing)
    curves, histogram = _tables(params, measured, metrics)

    name, former = champion_ranks(params.champion) if params.champion else ("No champion was named.", None)
    differences = [] if former is None else compare(ranks, former, params.recall_at, params.resamples, params.seed)
    subject = Subject(params, model, whole, split, store, reader, measured, localizer, pointing, why_not)
    artifacts = {"dataset": dataset, "features": features, "text": text, "embedding": embedding}
    page = make_page(subject, figures, curves, histogram, (name, differences), artifacts)
    (report / "index.html").write_text(render(page), encoding="utf-8")
    encoder = type(model_encoder(model)).__name__
    card = model_card(encoder, params.split, params.protocol, figures, page.lineage)
    (metrics / CARD).write_text(card, encoding="utf-8")
    log_files(report)
    return _flat(figures)


def _figures(params: EvaluateParams, measured: Measured) -> dict[str, Any]:
    found = summarize_folds(measured.plain, params.recall_at)
    of = measured.image_of_query()
    intervals = retrieval_intervals(
        measured.all_ranks(), of, params.recall_at, resamples=params.resamples, seed=params.seed
    )
    return {
        **found,
        "recall_sum": sum(value for part in found.values() for key, value in part.items() if key.startswith("R@")),
        "intervals": intervals,
        "reranked": summarize_folds(measured.reranked, params.recall_at),
        "chance": chance_report(measured.folds[0].image_of_caption, params.recall_at),
        "images": sum(len(fold.images) for fold in measured.folds),
        "captions": sum(len(fold.captions) for fold in measured.folds),
    }


def _tables(params: EvaluateParams, measured: Measured, metrics: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Recall curves and the histogram of ranks, as tables and as figures."""
    ks = range(1, 1 + min(params.curve_to, len(measured.folds[0].images)))
    columns = {
        f"{direction}{suffix}": [100 * joined(both[side] for both in folds).recall(k) for k in ks]
        for suffix, folds in (("", measured.plain), ("_reranked", measured.reranked))
        for side, direction in enumerate(("caption_retrieval", "image_retrieval"))
    }
    curves = pd.DataFrame({"K": ks} | columns)
    histogram = rank_table(measured, RANK_EDGES)
    curves.to_csv(metrics / "recall_curves.csv", index=False)
    histogram.to_csv(metrics / "rank_histogram.csv", index=False)
    drawn = {name: Figure(figsize=(7, 4.5), layout="constrained") for name in ("recall_curves", "rank_histogram")}
    lines = {name.replace("_", " "): values for name, values in columns.items()}
    plot_recall(drawn["recall_curves"].add_subplot(), lines, ks)
    plot_rank_histogram(drawn["rank_histogram"].add_subplot(), histogram)
    for name, figure in drawn.items():
        figure.savefig(metrics / f"{name}.png", dpi=120, metadata={"Software": None})
        log_figure(figure, f"{name}.png")
    return curves, histogram


def _flat(figures: dict[str, Any]) -> dict[str, float]:
    """The figures to track: not the intervals and not what chance gives."""
    kept: dict[str, float] = {"recall_sum": figures["recall_sum"]}
    for prefix, part in (("", figures), ("reranked.", figures["reranked"])):
        for direction in ("caption_retrieval", "image_retrieval"):
            kept |= {f"{prefix}{direction}.{name}": value for name, value in part[direction].items()}
    if "pointing" in figures:
        kept |= {f"pointing.{name}": figures["pointing"][name] for name in ("accuracy", "centre", "random")}
    return kept
