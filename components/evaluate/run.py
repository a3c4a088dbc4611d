"""How evaluate works."""

from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure

from bifocal.batch import Pairs
from bifocal.datasets import read_dataset
from bifocal.embedding import embed
from bifocal.features import FeatureStore
from bifocal.metrics import chance_report, retrieval_ranks, summarize
from bifocal.models import load_model
from bifocal.plots import plot_recall
from bifocal.text import TextStore
from components.artifact import write_json
from components.evaluate.evidence import write_evidence
from components.evaluate.spec import EvaluateParams
from components.tracking import log_figure


def run(
    params: EvaluateParams, *, dataset: Path, features: Path, text: Path, embedding: Path, metrics: Path
) -> dict[str, float]:
    """Write ``metrics.json``, the recall curves as a table, and their figure."""
    model = load_model(embedding, "cuda" if torch.cuda.is_available() else "cpu")
    tables = read_dataset(dataset)
    pairs = Pairs(tables.split(params.split), FeatureStore(features), TextStore(text))
    images, captions = embed(model, pairs)
    plain = retrieval_ranks(images, captions, pairs.image_of_caption)
    reranked = retrieval_ranks(images, captions, pairs.image_of_caption, rerank=True)

    figures, reranked_figures = summarize(plain, params.recall_at), summarize(reranked, params.recall_at)
    report = {
        **figures,
        "reranked": reranked_figures,
        "chance": chance_report(pairs.image_of_caption, params.recall_at),
        "images": len(images),
        "captions": len(captions),
    }
    write_json(metrics / "metrics.json", report)
    write_evidence(metrics, tables, params.split, plain)

    ks = range(1, 1 + min(params.curve_to, len(images)))
    curves = {
        f"{direction}{suffix}": [100 * found.recall(k) for k in ks]
        for suffix, both in (("", plain), ("_reranked", reranked))
        for direction, found in zip(("caption_retrieval", "image_retrieval"), both, strict=True)
    }
    pd.DataFrame({"K": ks} | curves).to_csv(metrics / "recall_curves.csv", index=False)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    plot_recall(figure.add_subplot(), {name.replace("_", " "): values for name, values in curves.items()}, ks)
    figure.savefig(metrics / "recall_curves.png", dpi=120, metadata={"Software": None})
    log_figure(figure, "recall_curves.png")
    return {
        f"{prefix}{direction}.{name}": value
        for prefix, part in (("", figures), ("reranked.", reranked_figures))
        for direction, values in part.items()
        for name, value in values.items()
    }
