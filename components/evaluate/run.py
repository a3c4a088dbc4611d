"""Stage evaluate: run."""

from pathlib import Path

import torch

from bifocal.datasets import read_dataset
from bifocal.evaluation.base import Subject, merge_metrics, scalar_metrics, summary_metrics
from bifocal.evaluation.page import build_page, data_sentence
from bifocal.evaluation.rank_tables import write_rank_tables
from bifocal.features import open_features
from bifocal.hubness.bank import HubnessBank
from bifocal.models import load_model
from bifocal.progress import log_line
from bifocal.registry import build
from bifocal.report import model_card
from bifocal.report.html import render
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from components.evaluate.files import lineage, write_tables_and_figures
from components.evaluate.spec import EvaluateParams
from runtime.artifacts import read_manifest, write_json
from runtime.mlflow import log_files
from runtime.spec import flatten

FOOTER = "Written by python -m components evaluate. This page is one file and loads nothing."


def run(
    params: EvaluateParams, *, dataset: Path, features: Path, text: Path, embedding: Path, metrics: Path, report: Path
) -> dict[str, float]:
    """Run the evaluators; write metrics, ranks, tables, figures, the model card and the report."""
    model = load_model(embedding, "cuda" if torch.cuda.is_available() else "cpu")
    tables = read_dataset(dataset)
    stores = (open_features(features, tables), TextStore(text), load_vectorizer(text))
    subject = Subject(model, tables, params.split, *stores, seed=params.seed, bank=HubnessBank.read(embedding))
    available = {
        "bootstrap_resamples": params.bootstrap_resamples,
        "shown_queries": params.report.queries,
        "duplicate_check_images": params.report.duplicate_check,
    }
    evaluators = [build("bifocal.evaluation", evaluator, **available) for evaluator in params.evaluators]
    results = []
    for evaluator in evaluators:
        result = evaluator(subject)
        results.append(result)
        if result.skipped:
            log_line(f"{result.title} is skipped: {result.skipped}")
    write_json(metrics / "metrics.json", merge_metrics(results))
    write_json(metrics / "summary.json", summary_metrics(results))
    write_rank_tables(metrics, results, subject.dataset, params.split, subject.features)
    write_tables_and_figures(metrics, results)
    artifacts = lineage({"dataset": dataset, "features": features, "text": text, "embedding": embedding})
    page = build_page(subject, results, artifacts, FOOTER)
    (report / "index.html").write_text(render(page), encoding="utf-8")
    rows = {result.title: result.metric_rows() for result in results if result.metric_rows()}
    corpus = str(flatten(read_manifest(dataset)["parameters"]).get("corpus.name", "unknown"))
    card = model_card.model_card(
        subject.encoder_name, data_sentence(subject), rows, artifacts, corpus=corpus, split=params.split,
        single_vector=model.single_vector,
    )  # fmt: skip
    (metrics / model_card.FILE).write_text(card, encoding="utf-8")
    log_files(report)
    return scalar_metrics(results)
