"""Semantic retrieval: images find images of the same meaning, measured against captions and against people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.human_triplets import fit_on_captions, triplet_metrics, triplet_rows
from bifocal.metrics import area_under, choose_queries, semantic_curves
from bifocal.metrics.ranking.semantic_relevance import image_vectors, relevance
from bifocal.report.charts import line_chart
from bifocal.report.figures import chart_figure
from bifocal.report.metric_rows import MetricRow, metric_table
from bifocal.report.plots import plot_lines
from bifocal.report.sections import Block, Chart, Section, Table
from bifocal.text.vectorizers import TFIDF

RESULTS = (8, 16, 32, 64, 128)
"""R of NDCG@R and PCC@R, as far as the split has images."""
MEASURES = ("NDCG", "PCC")


class SemanticRetrieval:
    """NDCG@R and PCC@R of images found by images, against tf-idf of their captions.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, sections 3, 4 and 6.

    Args:
        human_triplets: CSV file of judged triplets of images with the columns query, first, second (image ids), and
            o1, o2, o3 (how many people chose the first, the second, neither); None measures no agreement.
    """

    title = "Semantic retrieval"

    def __init__(self, human_triplets: str | Path | None = None) -> None:
        self.human_triplets = None if human_triplets is None else Path(human_triplets)

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped if the model has no single vector per image.

        Raises:
            ValueError: triplets are given, and the model has no single vector per image.
        """
        if subject.embeddings is None:
            if self.human_triplets is not None:
                raise ValueError(
                    f"human_triplets is {self.human_triplets}, but a {type(subject.model).__name__} has no single "
                    "vector per image to compare: leave human_triplets out"
                )
            return Result(self.title, skipped=f"A {type(subject.model).__name__} has no single vector per image.")
        images, dataset, split = normalize(subject.embeddings[0], dim=1), subject.dataset, subject.split
        values, curves = semantic_metrics(images, dataset, split, subject.seed)
        metrics = {"semantic": values}
        rows = list(_rows(values))
        chart = ({f"{name}@R": curves[name].tolist() for name in MEASURES}, curves["R"].tolist(), "R", "percent")
        blocks: list[Block] = [Chart(line_chart(*chart)), semantic_table(values)]
        if self.human_triplets is not None:
            metrics["triplets"] = triplet_metrics(self.human_triplets, images, dataset, split, subject.seed)
            agreement = triplet_rows(metrics["triplets"])
            rows += agreement
            count = f"{metrics['triplets']['triplets']:,}"
            blocks.append(metric_table(f"Agreement with people on {count} triplets", agreement))
        note = (
            f"{values['queries']:,} images as queries, all other images of the split as answers. Relevance: tf-idf "
            "similarity of the captions. NDCG@R weights the first R answers by rank; PCC@R is the correlation of score "
            "and relevance among them. Random: random scores."
        )
        return Result(
            self.title,
            metrics,
            rows=rows,
            sections=[Section(self.title, note, blocks)],
            tables={"semantic_curves": curves},
            figures={"semantic_curves": chart_figure(lambda ax: plot_lines(ax, *chart))},
        )


def semantic_metrics(
    images: Tensor, dataset: Dataset, split: Dataset, seed: int
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return NDCG@R, PCC@R and the areas under them, in percent; a query is not among its own answers.

    Args:
        images: embeddings of the images of ``split``, of unit norm.
        dataset: all splits; tf-idf is fitted on its training captions.

    Returns:
        metrics, with those of random scores as ``chance``, and the curves with the columns R, NDCG, PCC.
    """
    queries = choose_queries(len(images), seed)
    relevant = relevance(image_vectors(fit_on_captions(TFIDF(), dataset, split, seed), split), queries)
    rs = [r for r in RESULTS if r < len(images)] or [len(images) - 1]
    random = torch.rand(relevant.shape, generator=torch.Generator().manual_seed(seed))
    values, chance = (
        _by_name(*semantic_curves(scores, relevant, queries, rs)) for scores in (images[queries] @ images.T, random)
    )
    curves = pd.DataFrame({"R": rs} | {name: [values[f"{name}@{r}"] for r in rs] for name in MEASURES})
    return {**values, "chance": chance, "queries": len(queries)}, curves


def semantic_table(metrics: Mapping[str, Any]) -> Table:
    """Return the report's table: one row per R and one for the areas."""
    chance, rows = metrics["chance"], []
    for name in [name.removeprefix("NDCG") for name in chance if name.startswith("NDCG")]:
        cells = [f"{values[measure + name]:.1f}" for measure in MEASURES for values in (metrics, chance)]
        rows.append(("area" if name == "_area" else f"R = {name[1:]}", *cells))
    return Table("Against tf-idf of the captions", ("", "NDCG@R", "random", "PCC@R", "random"), rows)


def _by_name(ndcg: dict[int, float], pcc: dict[int, float]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, curve in zip(MEASURES, (ndcg, pcc), strict=True):
        values |= {f"{name}@{r}": 100 * value for r, value in curve.items()}
        values[f"{name}_area"] = 100 * area_under(curve)
    return values


def _rows(metrics: Mapping[str, Any]) -> list[MetricRow]:
    return [
        MetricRow(f"semantic.{name}", metrics[name], name.replace("_", " "), baselines={"random": chance}, unit="%")
        for name, chance in metrics["chance"].items()
    ]
