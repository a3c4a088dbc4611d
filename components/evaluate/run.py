"""How evaluate works."""

from pathlib import Path

import torch

from bifocal.batch import ImageCaptionPairs
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.models import load_model
from bifocal.report.page import render
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from components.evaluate.card import CARD, model_card
from components.evaluate.champion import champion_ranks, compare
from components.evaluate.drawings import draw
from components.evaluate.evidence import write_evidence
from components.evaluate.figures import rank_table
from components.evaluate.grounding import ground
from components.evaluate.heatmaps import pointed_examples, similar_pairs
from components.evaluate.meaning import measure_meaning
from components.evaluate.measure import measure
from components.evaluate.pointer import model_encoder
from components.evaluate.report import ReportInputs, make_page
from components.evaluate.retrieval import recall_curves, retrieval_figures, tracked
from components.evaluate.spec import EvaluateParams
from runtime.artifacts import write_json
from runtime.mlflow import log_figure, log_files

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
    """Write the figures, the ranks of every query, tables and pictures, and the page that shows them."""
    model = load_model(embedding, "cuda" if torch.cuda.is_available() else "cpu")
    whole, store, reader = read_dataset(dataset), FeatureStore(features), load_vectorizer(text)
    split = whole.split(params.split)
    pairs = ImageCaptionPairs(split, store, TextStore(text))
    measured = measure(model, pairs, split.captions["caption_id"].to_numpy(), params.protocol)
    grounded = ground(params, model, store, reader, whole)
    meaning = measure_meaning(params, model, measured, reader, whole)
    figures = retrieval_figures(params, measured) | grounded.figures | meaning.figures
    write_json(metrics / "metrics.json", figures)
    ranks = write_evidence(metrics, whole, params.split, measured, grounded.pointing)

    tables = {
        "recall_curves": recall_curves(params, measured),
        "rank_histogram": rank_table(measured, RANK_EDGES),
        "semantic_curves": meaning.curves,
    }
    if grounded.precision is not None:
        tables["phrase_precision"] = grounded.precision
    for name, table in tables.items():
        table.to_csv(metrics / f"{name}.csv", index=False)
    pointed = pointed_examples(grounded, 2 * params.examples, params.seed)
    similar = similar_pairs(model, measured.images, store, split, params.examples, params.seed)
    (metrics / "pictures").mkdir()
    for name, figure in draw(tables, pointed, similar, split).items():
        figure.savefig(metrics / "pictures" / f"{name}.png", dpi=120, metadata={"Software": None})
        log_figure(figure, f"{name}.png")

    champion, former = champion_ranks(params.champion) if params.champion else ("No champion was named.", None)
    differences = [] if former is None else compare(ranks, former, params.recall_at, params.resamples, params.seed)
    subject = ReportInputs(params, model, whole, split, reader, measured, grounded.why_not, pointed, similar)
    artifacts = {"dataset": dataset, "features": features, "text": text, "embedding": embedding}
    page = make_page(subject, figures, tables, (champion, differences), artifacts)
    (report / "index.html").write_text(render(page), encoding="utf-8")
    card = model_card(type(model_encoder(model)).__name__, params.split, params.protocol, figures, page.lineage)
    (metrics / CARD).write_text(card, encoding="utf-8")
    log_files(report)
    return tracked(figures)
