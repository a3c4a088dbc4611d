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
from bifocal.evaluation.semantic.caption_similarity import fit_tf_idf
from bifocal.evaluation.semantic.human_triplets import triplet_metrics, triplet_rows
from bifocal.metrics import area_under, choose_queries, semantic_curves
from bifocal.metrics.ranking.semantic_relevance import image_vectors, relevance, sum_by_image
from bifocal.models.embedding import BATCH, dual_encoder, embed_texts
from bifocal.report.charts import line_chart
from bifocal.report.metric_rows import MetricRow, metric_table
from bifocal.report.plots import chart_figure, plot_lines
from bifocal.report.sections import Block, Chart, Section, Table
from bifocal.text import TextBatch

RESULTS = (8, 16, 32, 64, 128)
"""R of NDCG@R and PCC@R, as far as the split has images."""
MEASURES = ("NDCG", "PCC")


class SemanticRetrieval:
    """NDCG@R and PCC@R of images found by images, against tf-idf of their captions.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, sections 3, 4 and 6.

    Args:
        human_triplets: CSV file of judged triplets of images with the columns query, first, second (image ids), and
            either o1, o2, o3 (how many people chose the first, the second, neither), or user and choice (first, second
            or neither), which gives the agreement between people too; None measures no agreement.
        with_text: query also with an image and its own captions, "(V+T, V+T)" in the paper. It needs one vector per
            caption and a text encoder that was trained with the images.
    """

    title = "Semantic retrieval"

    def __init__(self, human_triplets: str | Path | None = None, with_text: bool = False) -> None:
        self.human_triplets = None if human_triplets is None else Path(human_triplets)
        self.with_text = with_text

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; without one vector per image, skip it, or raise ``ValueError`` if given triplets."""
        if subject.image_embeddings is None:
            if self.human_triplets is not None:
                raise ValueError(
                    f"human_triplets is {self.human_triplets}, but a {type(subject.model).__name__} has no single "
                    "vector per image to compare: leave human_triplets out"
                )
            return Result(self.title, skipped=f"A {type(subject.model).__name__} has no single vector per image.")
        images, dataset, split = normalize(subject.image_embeddings, dim=1), subject.dataset, subject.split
        with_text = image_and_text(subject, images) if self.with_text else None
        values, curves = semantic_metrics(images, dataset, split, subject.seed, with_text)
        metrics, rows = {"semantic": values}, _rows(values)
        lines = {
            f"{name}@R{label}": curves[f"{name}{kind}"].tolist()
            for kind, label in (("", ""), ("_with_text", ", with text"))
            for name in MEASURES
            if f"{name}{kind}" in curves
        }
        chart = (lines, curves["R"].tolist(), "R", "percent")
        blocks: list[Block] = [Chart(line_chart(*chart)), semantic_table(values)]
        if self.human_triplets is not None:
            metrics["triplets"] = triplet_metrics(self.human_triplets, images, dataset, split, subject.seed, with_text)
            agreement = triplet_rows(metrics["triplets"])
            rows += agreement
            count = f"{metrics['triplets']['triplets']:,}"
            blocks.append(metric_table(f"Agreement with people on {count} triplets", agreement))
        note = (
            f"{values['queries']:,} images as queries, all other images of the split as answers. Relevance: tf-idf "
            "similarity of all words of the captions. NDCG@R weights the first R answers by rank; PCC@R is the "
            "correlation of score and relevance among them. Random: random scores."
        )
        return Result(
            self.title,
            metrics,
            rows=rows,
            sections=[Section(self.title, note, blocks)],
            tables={"semantic_curves": curves},
            figures={"semantic_curves": chart_figure(lambda ax: plot_lines(ax, *chart))},
        )


def image_and_text(subject: Subject, images: Tensor) -> Tensor:
    """Return the unit sums (N, d) of the image embeddings and the embedded tf-idf of each image's captions."""
    pairs = subject.pairs
    bags = sum_by_image(pairs.caption_matrix(), pairs.image_of_caption.numpy(), len(images))
    dense = (torch.from_numpy(bags[rows.numpy()].toarray()).float() for rows in torch.arange(len(images)).split(BATCH))
    texts = (TextBatch(values, torch.ones(len(values), dtype=torch.int64)) for values in dense)
    return normalize(images + embed_texts(dual_encoder(subject.model), texts), dim=1)


def semantic_metrics(
    images: Tensor, dataset: Dataset, split: Dataset, seed: int, with_text: Tensor | None = None
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return NDCG@R, PCC@R and their areas in percent, and the curves, for ``images`` of unit norm; the metrics of
    queries ``with_text`` and of random scores (``chance``) are nested.
    """
    queries = choose_queries(len(images), seed)
    relevant = relevance(image_vectors(fit_tf_idf(dataset, split), split), queries)
    rs = [r for r in RESULTS if r < len(images)] or [len(images) - 1]

    def measured(scores: Tensor) -> dict[str, float]:
        return _by_name(*semantic_curves(scores, relevant, queries, rs))

    values: dict[str, Any] = {"": measured(images[queries] @ images.T)}
    if with_text is not None:
        values["_with_text"] = measured(with_text[queries] @ images.T)
    curves = pd.DataFrame(
        {"R": rs}
        | {f"{name}{kind}": [at[f"{name}@{r}"] for r in rs] for kind, at in values.items() for name in MEASURES}
    )
    random = torch.rand(relevant.shape, generator=torch.Generator().manual_seed(seed))
    others = {kind.removeprefix("_"): at for kind, at in values.items() if kind}
    return {**values[""], **others, "chance": measured(random), "queries": len(queries)}, curves


def semantic_table(metrics: Mapping[str, Any]) -> Table:
    """Return the report's table: one row per R and one for the areas."""
    chance, with_text, rows = metrics["chance"], metrics.get("with_text"), []
    columns = [metrics, *([] if with_text is None else [with_text]), chance]
    for name in [name.removeprefix("NDCG") for name in chance if name.startswith("NDCG")]:
        cells = [f"{values[measure + name]:.1f}" for measure in MEASURES for values in columns]
        rows.append(("area" if name == "_area" else f"R = {name[1:]}", *cells))
    kinds = ["", *([] if with_text is None else [", with text"]), ", random"]
    head = ("", *(f"{measure}@R{kind}" for measure in MEASURES for kind in kinds))
    return Table("Against tf-idf of the captions", head, rows)


def _by_name(ndcg: dict[int, float], pcc: dict[int, float]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, curve in zip(MEASURES, (ndcg, pcc), strict=True):
        values |= {f"{name}@{r}": 100 * value for r, value in curve.items()}
        values[f"{name}_area"] = 100 * area_under(curve)
    return values


def _rows(metrics: Mapping[str, Any]) -> list[MetricRow]:
    chance = metrics["chance"]
    rows = [
        MetricRow(f"semantic.{name}", metrics[name], name.replace("_", " "), baselines={"random": value}, unit="%")
        for name, value in chance.items()
    ]
    for name, value in metrics.get("with_text", {}).items():
        label = f"{name.replace('_', ' ')}, image and text"
        rows.append(
            MetricRow(f"semantic.with_text.{name}", value, label, baselines={"image alone": metrics[name]}, unit="%")
        )
    return rows
