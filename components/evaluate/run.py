"""Stage evaluate: run."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

import torch

from bifocal.datasets import read_dataset
from bifocal.datasets.corrections import FOUND, is_answered
from bifocal.durable import write_json
from bifocal.evaluation.base import (
    Result,
    Subject,
    build_page,
    data_sentence,
    merge_metrics,
    scalar_metrics,
    summary_metrics,
)
from bifocal.evaluation.rank_tables import write_rank_tables
from bifocal.features import open_features
from bifocal.hubness.bank import HubnessBank
from bifocal.models import load_model
from bifocal.models.batch import BATCH, dual_encoder, embed_images, embed_texts, is_dual_encoder
from bifocal.progress import log_line
from bifocal.registry import build
from bifocal.report import model_card
from bifocal.report.sections import render
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from components.evaluate.spec import COMPONENT, EvaluateParams
from runtime.artifacts import artifact_hash, read_manifest
from runtime.mlflow import log_files
from runtime.spec import flatten

FOOTER = "Written by python -m components evaluate. This page is one file and loads nothing."


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
    """Run the evaluators; write metrics, ranks, tables, figures, the model card and the report."""
    model = load_model(embedding, "cuda" if torch.cuda.is_available() else "cpu")
    tables = read_dataset(dataset)
    stores = (open_features(features, tables), TextStore(text), load_vectorizer(text))
    subject = Subject(
        model,
        tables,
        params.split,
        *stores,
        seed=params.seed,
        resamples=params.bootstrap_resamples,
        shown=params.report.queries,
        compared=params.report.duplicate_check,
        bank=HubnessBank.read(embedding),
    )
    results = [build("bifocal.evaluation", evaluator)(subject) for evaluator in params.evaluators]
    for result in results:
        if result.skipped:
            log_line(f"{result.title} is skipped: {result.skipped}")
    write_json(metrics / "metrics.json", merge_metrics(results))
    write_json(metrics / "summary.json", summary_metrics(results))
    write_rank_tables(metrics, results, subject.dataset, params.split, subject.features)
    write_tables_and_figures(metrics, results)
    artifacts = lineage(
        {"dataset": dataset, "features": features, "text": text, "embedding": embedding}
    )
    page = build_page(subject, results, artifacts, FOOTER)
    page = replace(page, subtitle=f"{page.subtitle}{corrections_sentence(subject)}")
    if name := os.environ.get("BIFOCAL_RUN_NAME", "").partition(" ")[0]:
        images = f"{len(subject.split.images):,} images of the split {params.split}"
        page = replace(page, title=f"{name}, {date.today()}: {images}")
    (report / "index.html").write_text(render(page), encoding="utf-8")
    rows = {result.title: result.metric_rows() for result in results if result.metric_rows()}
    corpus = str(flatten(read_manifest(dataset)["parameters"]).get("corpus.name", "unknown"))
    card = model_card.model_card(
        subject.encoder_name,
        data_sentence(subject),
        rows,
        artifacts,
        corpus=corpus,
        split=params.split,
        single_vector=model.single_vector,
    )
    (metrics / model_card.FILE).write_text(card, encoding="utf-8")
    log_files(report)
    return scalar_metrics(results)


def corrections_sentence(subject: Subject) -> str:
    """Return how many corrections the model answers by a search of all images; empty for none."""
    table = subject.dataset.corrections
    if table.empty or not is_dual_encoder(subject.model):
        return ""
    model, ids = dual_encoder(subject.model), subject.dataset.images["image_id"].to_numpy()
    features, text = subject.features, subject.text
    images = embed_images(model, features.batches(features.rows(ids), BATCH))
    texts = embed_texts(model, [text.gather(text.rows(table["caption_id"].to_numpy()))])
    found = ids[(texts @ images.T).topk(min(FOUND, len(ids))).indices.numpy()].tolist()
    answers = zip(table["image_id"], found, table["right"], strict=True)
    answered = sum(is_answered(image, first, right=right) for image, first, right in answers)
    return f" The model answers {answered} of {len(table)} corrections."


def write_tables_and_figures(directory: Path, results: list[Result]) -> None:
    """Write tables as CSV and figures as SVG and PNG, and log the figures."""
    # DVC reports a declared plot without its file as an error: give it an empty table if its
    # evaluator did not run.
    for plot in COMPONENT.plots:
        file = directory / Path(plot.path).name
        file.write_text(f"{plot.x},{plot.y}\n")
    (directory / "pictures").mkdir(exist_ok=True)
    for result in results:
        for name, table in result.tables.items():
            table.map(_escape_formula).to_csv(directory / f"{name}.csv", index=False)
        for name, figure in result.figures.items():
            if isinstance(figure, str):
                svg = figure.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
                (directory / "pictures" / f"{name}.svg").write_text(svg, encoding="utf-8")
            else:
                figure.save(directory / "pictures" / f"{name}.png")
    log_files(directory / "pictures")


def _escape_formula(cell: object) -> object:
    """Return a cell that no spreadsheet runs as a formula: phrases and ids come from users."""
    return (
        f"'{cell}"
        if isinstance(cell, str) and cell.startswith(tuple("=+-@\t\r\n＝＋－＠"))
        else cell
    )


def lineage(artifacts: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Return, for each artifact, its stage, parameters, metrics and hashes as texts; MLflow has the
    git commit."""
    entries = dict[str, dict[str, str]]()
    for name, path in artifacts.items():
        manifest = read_manifest(path)
        rows = {"artifact": artifact_hash(path), "code": str(manifest["code"])}
        rows |= {f"input {source}": str(digest) for source, digest in manifest["inputs"].items()}
        rows |= {key: str(value) for key, value in flatten(manifest["parameters"]).items()}
        rows |= {f"metric {key}": f"{value:g}" for key, value in manifest["metrics"].items()}
        entries[f"{name}, by {manifest['component']}"] = rows
    return entries
