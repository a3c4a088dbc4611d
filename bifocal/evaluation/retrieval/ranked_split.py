"""Retrieval on a split: ranks of all queries, and their tables for readers, charts and
comparisons."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Subject
from bifocal.evaluation.rank_tables import pool_hash, query_ranks, text_hashes
from bifocal.metrics import PROTOCOLS, Ranks, protocol_ranks, protocol_score_ranks, split_folds
from bifocal.metrics.retrieval.blockwise_ranks import BlockScores
from bifocal.metrics.retrieval.protocols import Fold
from bifocal.metrics.retrieval.ranks import concatenate
from bifocal.models.batch import to_device
from bifocal.report.sections import MetricRow, Table

IMAGES_PER_BLOCK = 32
DIRECTIONS = {"caption_retrieval": "Caption retrieval", "image_retrieval": "Image retrieval"}
RERANKED = "_reranked"
RANK_EDGES = (0, 1, 2, 3, 5, 10, 20, 50)
"""Bounds of the bins of the rank histogram; ranks from 0."""


@dataclass(frozen=True)
class RankedSplit:
    """Ranks of all queries by fold: (caption retrieval, image retrieval). ``reranked`` and
    ``corrected`` rank re-ranked and hubness-corrected scores; ``scores`` returns any block of the
    split's scores.
    """

    folds: list[Fold]
    raw: list[tuple[Ranks, Ranks]]
    reranked: list[tuple[Ranks, Ranks]]
    scores: BlockScores
    corrected: list[tuple[Ranks, Ranks]] | None = None

    def all_ranks(self) -> tuple[Ranks, Ranks]:
        """Return the raw ranks of all folds, in the order of ``rows``."""
        caption_ranks, image_ranks = zip(*self.raw, strict=True)
        return concatenate(caption_ranks), concatenate(image_ranks)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Return the rows in the split of the image queries and of the caption queries."""
        return torch.cat([fold.images for fold in self.folds]), torch.cat(
            [fold.captions for fold in self.folds]
        )

    def image_of_query(self) -> Tensor:
        """Return, for each caption query, the index of its image among the image queries."""
        starts = [0]
        for fold in self.folds:
            starts.append(starts[-1] + len(fold.images))
        return torch.cat(
            [fold.image_of_caption + start for fold, start in zip(self.folds, starts, strict=False)]
        )


def rank_split(subject: Subject, protocol: str) -> RankedSplit:
    """Rank the split of ``subject`` under a protocol, a key of ``bifocal.metrics.PROTOCOLS``."""
    pairs = subject.pairs
    folds = split_folds(PROTOCOLS[protocol], pairs.image_of_caption, len(pairs.image_ids))
    scores = split_scores(subject)
    if subject.embeddings is None:
        raw, reranked = (
            protocol_score_ranks(folds, scores, rerank=rerank) for rerank in (False, True)
        )
        return RankedSplit(folds, raw, reranked, scores)
    images, captions = subject.embeddings
    raw, reranked = (
        protocol_ranks(folds, images, captions, rerank=rerank) for rerank in (False, True)
    )
    corrected = None
    if subject.bank is not None:
        biases = (
            subject.bank.image_bias(images.numpy()),
            subject.bank.caption_bias(captions.numpy()),
        )
        by_image, by_caption = (torch.from_numpy(bias) for bias in biases)
        corrected = protocol_ranks(folds, images, captions, biases=(by_image, by_caption))
    return RankedSplit(folds, raw, reranked, scores, corrected)


def split_scores(subject: Subject) -> BlockScores:
    """Return a function from rows of images and of captions to their scores."""
    if subject.embeddings is None:
        return _pair_scores(subject)
    images, captions = subject.embeddings
    return lambda rows, columns: images[rows] @ captions[columns].T


def _pair_scores(subject: Subject) -> BlockScores:
    """Return a function that scores blocks with a grounding model; the cells of all images stay in
    memory."""
    model: Any = subject.model
    pairs = subject.pairs
    model.eval()
    with torch.inference_mode():
        batches = pairs.image_batches(IMAGES_PER_BLOCK)
        cells = torch.cat(
            [model.embed_images(to_device(regions, model.device)).cpu() for regions in batches]
        )
    cache: dict[str, Any] = {}

    def scores(rows: Tensor, columns: Tensor) -> Tensor:
        with torch.inference_mode():
            # Successive blocks share their captions: embed them once.
            if cache.get("columns") is not columns:
                captions = model.embed_captions(
                    to_device(pairs.caption_text(columns), model.device)
                )
                cache.update(columns=columns, captions=captions)
            blocks = (cells[some].to(model.device) for some in rows.split(IMAGES_PER_BLOCK))
            return torch.cat(
                [model.score(block, cache["captions"]).cross.float().cpu() for block in blocks]
            )

    return scores


def metric_rows(metrics: Mapping[str, Any], protocol: str) -> Iterator[MetricRow]:
    """Yield the recall sum, then every metric of both directions, without and with re-ranking."""
    total = metrics["intervals"]["recall_sum"]["total"]
    maximum = 100.0 * sum(
        name.startswith("R@") for direction in DIRECTIONS for name in metrics[direction]
    )
    yield MetricRow(
        "recall_sum",
        metrics["recall_sum"],
        f"Recall sum of {maximum:.0f}, protocol {protocol}",
        (total["low"], total["high"]),
        unit="",
        maximum=maximum,
        headline=True,
    )
    for direction in DIRECTIONS:
        yield from direction_rows(metrics, direction)
    for group, suffix in (("corrected", "corrected"), ("reranked", "re-ranked (transductive)")):
        for direction, label in DIRECTIONS.items():
            for name, value in metrics.get(group, {}).get(direction, {}).items():
                title = f"{label}, {name.replace('_', ' ')}, {suffix}"
                yield MetricRow(f"{group}.{direction}.{name}", value, title, unit=_unit(name))


def direction_rows(metrics: Mapping[str, Any], direction: str) -> list[MetricRow]:
    """Return the metrics of one direction with intervals and chance levels; the first is a
    headline."""
    rows: list[MetricRow] = []
    for name, value in metrics[direction].items():
        interval, chance = metrics["intervals"][direction][name], metrics["chance"][direction][name]
        rows.append(
            MetricRow(
                f"{direction}.{name}",
                value,
                f"{DIRECTIONS[direction]}, {name.replace('_', ' ')}",
                (interval["low"], interval["high"]),
                {"chance": chance},
                unit=_unit(name),
                headline=not rows,
            )
        )
    return rows


def direction_table(metrics: Mapping[str, Any], direction: str) -> Table:
    """Return the report's table of one direction."""
    rows = []
    groups = {"corrected": "corrected", "reranked": "re-ranked"}
    groups = {group: label for group, label in groups.items() if group in metrics}
    for row in direction_rows(metrics, direction):
        name = row.name.removeprefix(f"{direction}.")
        others = [metrics[group][direction].get(name) for group in groups]
        values = ("-" if value is None else row.format(value) for value in others)
        cells = (
            row.format(row.value),
            row.interval_text(),
            *values,
            f"{row.baselines['chance']:.1f}",
        )
        rows.append((name.replace("_", " "), *cells))
    columns = ("", "value", "95 %", *groups.values(), "chance")
    query = {
        "caption_retrieval": "an image finds its captions",
        "image_retrieval": "a sentence finds its image",
    }
    return Table(f"{DIRECTIONS[direction]}: {query[direction]}", columns, rows)


def recall_curves(ranked: RankedSplit, max_k: int) -> pd.DataFrame:
    """Return R@K in percent by K: column K, and one column per direction, raw and re-ranked."""
    ks = range(1, 1 + min(max_k, len(ranked.folds[0].images)))
    columns = {
        f"{direction}{suffix}": [
            100 * concatenate(ranks[side] for ranks in folds).recall(k) for k in ks
        ]
        for suffix, folds in (("", ranked.raw), (RERANKED, ranked.reranked))
        for side, direction in enumerate(DIRECTIONS)
    }
    return pd.DataFrame({"K": ks} | columns)


def rank_histogram(ranked: RankedSplit) -> pd.DataFrame:
    """Return the histogram of ranks: column ``rank`` (bins, from 1), and the percentage of queries
    per direction."""
    labels = [
        f"{low + 1}" if high == low + 1 else f"{low + 1}–{high}"
        for low, high in pairwise(RANK_EDGES)
    ]
    columns = {}
    for direction, ranks in zip(DIRECTIONS, ranked.all_ranks(), strict=True):
        counts = np.histogram(ranks.expected().numpy(), [*RANK_EDGES, np.inf])[0]
        columns[direction] = 100 * counts / len(ranks.better)
    return pd.DataFrame({"rank": [*labels, f"over {RANK_EDGES[-1]}"]} | columns)


def retrieval_queries(subject: Subject, ranked: RankedSplit) -> pd.DataFrame:
    """Return the expected rank of every query of both directions."""
    image_rows, caption_rows = (rows.numpy() for rows in ranked.rows())
    images, captions = (
        subject.split.images.iloc[image_rows],
        subject.split.captions.iloc[caption_rows],
    )
    return rank_table(images, captions, ranked.all_ranks(), ranked.folds)


def full_rank_table(
    split: Dataset, image_of_caption: Tensor, ranks: tuple[Ranks, Ranks]
) -> pd.DataFrame:
    """Return the expected ranks of a split by the protocol "full"."""
    folds = split_folds(PROTOCOLS["full"], image_of_caption, len(split.images))
    return rank_table(split.images, split.captions, ranks, folds)


def rank_table(
    images: pd.DataFrame, captions: pd.DataFrame, ranks: tuple[Ranks, Ranks], folds: list[Fold]
) -> pd.DataFrame:
    """Return expected ranks of images and captions, ordered by fold, with the columns of
    ``ranks.parquet``."""
    caption_ranks, image_ranks = (side.expected().numpy() for side in ranks)
    ids, hashes, texts = (
        images["image_id"],
        images["sha256"].fillna(""),
        text_hashes(captions["text"]),
    )
    contents = [content or image_id for content, image_id in zip(hashes, ids, strict=True)]
    image_protocols: list[str] = []
    caption_protocols: list[str] = []
    for fold in folds:
        first_image, first_caption = len(image_protocols), len(caption_protocols)
        pool = contents[first_image : first_image + len(fold.images)]
        pool += texts[first_caption : first_caption + len(fold.captions)]
        image_protocols += len(fold.images) * [pool_hash(pool)]
        caption_protocols += len(fold.captions) * [pool_hash(pool)]
    tables = [
        query_ranks("caption_retrieval", ids, ids, hashes, image_protocols, caption_ranks),
        query_ranks(
            "image_retrieval",
            captions["caption_id"],
            captions["image_id"],
            texts,
            caption_protocols,
            image_ranks,
        ),
    ]
    return pd.concat(tables, ignore_index=True)


def _unit(name: str) -> str:
    return "" if name.endswith("_rank") else "%"
