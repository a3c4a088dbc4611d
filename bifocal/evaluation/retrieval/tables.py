"""Tables of cross-modal retrieval: scalars, recall curves, rank histogram, and the ranks of all queries."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bifocal.evaluation.base import Subject
from bifocal.evaluation.rank_tables import pool_hash, query_ranks, text_hashes
from bifocal.evaluation.retrieval.ranked_split import RankedSplit
from bifocal.metrics.retrieval.protocols import Fold
from bifocal.metrics.retrieval.ranks import concatenate
from bifocal.report.metric_rows import MetricRow
from bifocal.report.sections import Table

DIRECTIONS = {"caption_retrieval": "Caption retrieval", "image_retrieval": "Image retrieval"}
RERANKED = "_reranked"
RANK_EDGES = (0, 1, 2, 3, 5, 10, 20, 50)
"""Bounds of the bins of the rank histogram; ranks from 0."""


def metric_rows(metrics: Mapping[str, Any], protocol: str) -> Iterator[MetricRow]:
    """Yield the recall sum, then every metric of both directions, without and with re-ranking."""
    total = metrics["intervals"]["recall_sum"]["total"]
    maximum = 100.0 * sum(name.startswith("R@") for direction in DIRECTIONS for name in metrics[direction])
    yield MetricRow(
        "recall_sum", metrics["recall_sum"], f"Recall sum of {maximum:.0f}, protocol {protocol}",
        (total["low"], total["high"]),
        maximum=maximum, headline=True,
    )  # fmt: skip
    for direction in DIRECTIONS:
        yield from direction_rows(metrics, direction)
    for group, suffix in (("corrected", "corrected"), ("reranked", "re-ranked (transductive)")):
        for direction, label in DIRECTIONS.items():
            for name, value in metrics.get(group, {}).get(direction, {}).items():
                title = f"{label}, {name.replace('_', ' ')}, {suffix}"
                yield MetricRow(f"{group}.{direction}.{name}", value, title, unit=_unit(name))


def direction_rows(metrics: Mapping[str, Any], direction: str) -> list[MetricRow]:
    """Return the metrics of one direction with intervals and chance levels; the first is a headline."""
    rows: list[MetricRow] = []
    for name, value in metrics[direction].items():
        interval, chance = metrics["intervals"][direction][name], metrics["chance"][direction][name]
        rows.append(
            MetricRow(
                f"{direction}.{name}", value, f"{DIRECTIONS[direction]}, {name.replace('_', ' ')}",
                (interval["low"], interval["high"]), {"chance": chance},
                unit=_unit(name), maximum=100.0, headline=not rows,
            )
        )  # fmt: skip
    return rows


def direction_table(metrics: Mapping[str, Any], direction: str) -> Table:
    """Return the report's table of one direction."""
    rows = []
    groups = {"corrected": "corrected", "reranked": "re-ranked (transductive)"}
    groups = {group: label for group, label in groups.items() if group in metrics}
    for row in direction_rows(metrics, direction):
        name = row.name.removeprefix(f"{direction}.")
        others = [metrics[group][direction].get(name) for group in groups]
        values = ("-" if value is None else row.format(value) for value in others)
        cells = (row.format(row.value), row.interval_text(), *values, f"{row.baselines['chance']:.1f}")
        rows.append((name.replace("_", " "), *cells))
    columns = ("", "value", "95 %", *groups.values(), "chance")
    query = {"caption_retrieval": "an image finds its captions", "image_retrieval": "a sentence finds its image"}
    return Table(f"{DIRECTIONS[direction]}: {query[direction]}", columns, rows)


def recall_curves(ranked: RankedSplit, max_k: int) -> pd.DataFrame:
    """Return R@K in percent by K: column K, and one column per direction, raw and re-ranked."""
    ks = range(1, 1 + min(max_k, len(ranked.folds[0].images)))
    columns = {
        f"{direction}{suffix}": [100 * concatenate(ranks[side] for ranks in folds).recall(k) for k in ks]
        for suffix, folds in (("", ranked.raw), (RERANKED, ranked.reranked))
        for side, direction in enumerate(DIRECTIONS)
    }
    return pd.DataFrame({"K": ks} | columns)


def rank_histogram(ranked: RankedSplit) -> pd.DataFrame:
    """Return the histogram of ranks: column ``rank`` (bins, from 1), and the percentage of queries per direction."""
    labels = [f"{low + 1}" if high == low + 1 else f"{low + 1}–{high}" for low, high in pairwise(RANK_EDGES)]
    columns = {}
    for direction, ranks in zip(DIRECTIONS, ranked.all_ranks(), strict=True):
        counts = np.histogram(ranks.expected().numpy(), [*RANK_EDGES, np.inf])[0]
        columns[direction] = 100 * counts / len(ranks.better)
    return pd.DataFrame({"rank": [*labels, f"over {RANK_EDGES[-1]}"]} | columns)


def retrieval_queries(subject: Subject, ranked: RankedSplit) -> pd.DataFrame:
    """Return the expected rank of every query of both directions."""
    image_rows, caption_rows = (rows.numpy() for rows in ranked.rows())
    images, captions = subject.split.images.iloc[image_rows], subject.split.captions.iloc[caption_rows]
    caption_ranks, image_ranks = (ranks.expected().numpy() for ranks in ranked.all_ranks())
    return rank_table(images, captions, caption_ranks, image_ranks, ranked.folds)


def rank_table(
    images: pd.DataFrame, captions: pd.DataFrame, caption_ranks: ArrayLike, image_ranks: ArrayLike, folds: list[Fold]
) -> pd.DataFrame:
    """Return expected ranks of images and captions, ordered by fold, with the columns of ``ranks.parquet``."""
    ids, hashes, texts = images["image_id"], images["sha256"].fillna(""), text_hashes(captions["text"])
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
            "image_retrieval", captions["caption_id"], captions["image_id"], texts, caption_protocols, image_ranks
        ),
    ]
    return pd.concat(tables, ignore_index=True)


def _unit(name: str) -> str:
    return "" if name.endswith("_rank") else "%"
