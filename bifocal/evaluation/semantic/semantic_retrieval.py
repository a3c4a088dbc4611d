"""Semantic retrieval: images find images of the same meaning, measured against captions and against
people."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.semantic.human_triplets import (
    RANDOM_DRAWS,
    draw_triplets,
    fit_tf_idf,
    triplet_metrics,
    triplet_rows,
)
from bifocal.metrics import area_under, choose_queries, semantic_curves
from bifocal.metrics.ranking.semantic_relevance import image_vectors, relevance, sum_by_image
from bifocal.models.batch import BATCH, dual_encoder, embed_texts
from bifocal.report.charts import line_chart
from bifocal.report.sections import Block, Chart, MetricRow, Section, Table, metric_table
from bifocal.text import TextBatch

RESULTS = (8, 16, 32, 64, 128)
"""R of NDCG@R and PCC@R, as far as the split has images."""
MEASURES = ("NDCG", "PCC")
BINS = 20
"""Points of figure 2, right: bins of equally many pairs of a query and an answer."""


class SemanticRetrieval:
    """NDCG@R and PCC@R of images found by images, against tf-idf of their captions.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, sections 3, 4 and 6.

    Args:
        human_triplets: CSV file of judged triplets of images with the columns query, first, second
            (image ids), and either o1, o2, o3 (how many people chose the first, the second,
            neither), or user and choice (first, second or neither), which gives the agreement
            between people too; None measures no agreement.
        with_text: query also with an image and its own captions, "(V+T, V+T)" in the paper. It
            needs one vector per caption and a text encoder that was trained with the images.
        generated_captions: CSV file of captions that a network wrote, with the columns image_id and
            text, for the agreement of their tf-idf with people; it needs ``human_triplets``.
        drawn_triplets: number of triplets to draw for a user study, see ``draw_triplets``; the
            report has them as ``drawn_triplets.csv``.
    """

    title = "Semantic retrieval"

    def __init__(
        self,
        human_triplets: str | Path | None = None,
        with_text: bool = False,
        generated_captions: str | Path | None = None,
        drawn_triplets: int = 0,
    ) -> None:
        if generated_captions is not None and human_triplets is None:
            raise ValueError("generated_captions are compared with people: give human_triplets too")
        self.human_triplets = None if human_triplets is None else Path(human_triplets)
        self.generated_captions = None if generated_captions is None else Path(generated_captions)
        self.with_text, self.drawn_triplets = with_text, drawn_triplets

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; without one vector per image, skip it, or raise ``ValueError`` if
        given triplets."""
        if subject.image_embeddings is None:
            if self.human_triplets is not None:
                raise ValueError(
                    f"human_triplets is {self.human_triplets}, but a "
                    f"{type(subject.model).__name__} has no single vector per image to "
                    "compare: leave human_triplets out"
                )
            return Result(
                self.title,
                skipped=f"A {type(subject.model).__name__} has no single vector per image.",
            )
        images, dataset, split = (
            normalize(subject.image_embeddings, dim=1),
            subject.dataset,
            subject.split,
        )
        with_text = image_and_text(subject, images) if self.with_text else None
        values, tables = semantic_metrics(images, dataset, split, subject.seed, with_text)
        curves, pairs = tables["semantic_curves"], tables["semantic_pairs"]
        metrics, rows = {"semantic": values}, _rows(values)
        lines = {
            f"{name}@R{label}": curves[f"{name}{kind}"].tolist()
            for kind, label in (("", ""), ("_with_text", ", with text"))
            for name in MEASURES
            if f"{name}{kind}" in curves
        }
        cosines, relevances = (
            {"cosine": pairs["cosine"].tolist()},
            pairs["relevance"].round(1).tolist(),
        )
        figures = {
            "semantic_curves": line_chart(lines, curves["R"].tolist(), "R", "percent"),
            "semantic_pairs": line_chart(cosines, relevances, "tf-idf similarity", "percent"),
        }
        blocks: list[Block] = [*map(Chart, figures.values()), semantic_table(values)]
        if self.human_triplets is not None:
            metrics["triplets"] = triplet_metrics(
                self.human_triplets,
                images,
                dataset,
                split,
                subject.seed,
                with_text,
                self.generated_captions,
            )
            agreement = triplet_rows(metrics["triplets"])
            rows += agreement
            count = f"{metrics['triplets']['triplets']:,}"
            blocks.append(metric_table(f"Agreement with people on {count} triplets", agreement))
        note = (
            f"{values['queries']:,} images as queries, all other images of the split as "
            "answers. Relevance: tf-idf similarity of all words of the captions. NDCG@R "
            "weights the first R answers by rank; PCC@R is the correlation of score and "
            f"relevance among them. Random: mean of {RANDOM_DRAWS} draws of scores. The second "
            f"chart has the mean cosine of {BINS} bins of equally many pairs by relevance; the "
            f"correlation over all pairs is {values['correlation']:.1f} %."
        )
        if self.drawn_triplets:
            tables["drawn_triplets"] = draw_triplets(
                images, split, self.drawn_triplets, subject.seed
            )
        return Result(
            self.title,
            metrics,
            rows=rows,
            sections=[Section(self.title, note, blocks)],
            tables=tables,
            figures=figures,
        )


def image_and_text(subject: Subject, images: Tensor) -> Tensor:
    """Return the unit sums (N, d) of the image embeddings and the embedded tf-idf of each image's
    captions."""
    pairs = subject.pairs
    bags = sum_by_image(pairs.caption_matrix(), pairs.image_of_caption.numpy(), len(images))
    dense = (
        torch.from_numpy(bags[rows.numpy()].toarray()).float()
        for rows in torch.arange(len(images)).split(BATCH)
    )
    texts = (TextBatch(values, torch.ones(len(values), dtype=torch.int64)) for values in dense)
    return normalize(images + embed_texts(dual_encoder(subject.model), texts), dim=1)


def semantic_metrics(
    images: Tensor, dataset: Dataset, split: Dataset, seed: int, with_text: Tensor | None = None
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Return NDCG@R, PCC@R and their areas in percent, and the tables of curves, for ``images`` of
    unit norm.

    Nested: queries ``with_text``, random scores (``chance``) and their standard deviation over
    draws (``chance_std``).
    ``correlation``: Pearson's correlation of cosine and relevance over all pairs (figure 2, right).
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
        | {
            f"{name}{kind}": [at[f"{name}@{r}"] for r in rs]
            for kind, at in values.items()
            for name in MEASURES
        }
    )
    generator = torch.Generator().manual_seed(seed)
    draws = [measured(torch.rand(relevant.shape, generator=generator)) for _ in range(RANDOM_DRAWS)]
    chance, deviation = (
        {name: of([at[name] for at in draws]) for name in draws[0]} for of in (mean, pstdev)
    )
    others = {kind.removeprefix("_"): at for kind, at in values.items() if kind}
    correlation, pairs = cosine_by_relevance(images[queries] @ images.T, relevant, queries)
    values = {
        **values[""],
        **others,
        "chance": chance,
        "chance_std": deviation,
        "correlation": correlation,
    }
    return values | {"queries": len(queries)}, {"semantic_curves": curves, "semantic_pairs": pairs}


def cosine_by_relevance(
    cosines: Tensor, relevant: Tensor, queries: Tensor
) -> tuple[float, pd.DataFrame]:
    """Return Pearson's correlation over all pairs of a query and another image, and means by
    relevance, in percent.

    Gordo and Larlus, figure 2, right. The means are over bins of equally many pairs, in ascending
    relevance.

    Shape:
        cosines (Q, N), relevant (Q, N), queries (Q,): row of each query among the images
    """
    others = torch.ones_like(cosines, dtype=torch.bool).scatter_(1, queries.unsqueeze(1), False)
    pairs = torch.stack([relevant[others], cosines[others].double()])
    bins = [
        part.mean(dim=1)
        for part in pairs[:, pairs[0].argsort(stable=True)].tensor_split(BINS, dim=1)
    ]
    means = 100 * torch.stack([part for part in bins if not part.isnan().any()])
    correlation = float(torch.corrcoef(pairs)[0, 1].nan_to_num(0.0))
    return 100 * correlation, pd.DataFrame(means.numpy(), columns=["relevance", "cosine"])


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
        MetricRow(
            f"semantic.{name}",
            metrics[name],
            name.replace("_", " "),
            baselines={"random": value},
        )
        for name, value in chance.items()
    ]
    rows.append(
        MetricRow(
            "semantic.correlation",
            metrics["correlation"],
            "Correlation of cosine and tf-idf",
        )
    )
    for name, value in metrics.get("with_text", {}).items():
        label = f"{name.replace('_', ' ')}, image and text"
        rows.append(
            MetricRow(
                f"semantic.with_text.{name}",
                value,
                label,
                baselines={"image alone": metrics[name]},
            )
        )
    return rows
