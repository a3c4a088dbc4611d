"""Metrics: pure functions of scores and matches, or of embeddings in blocks."""

from bifocal.metrics.average_precision import average_precision, mean_average_precision
from bifocal.metrics.correlation import spearman
from bifocal.metrics.retrieval import (
    Ranks,
    chance_report,
    ranks,
    rerank_for_captions,
    rerank_for_images,
    retrieval_ranks,
    summarize,
)

__all__ = [
    "Ranks",
    "average_precision",
    "chance_report",
    "mean_average_precision",
    "ranks",
    "rerank_for_captions",
    "rerank_for_images",
    "retrieval_ranks",
    "spearman",
    "summarize",
]
