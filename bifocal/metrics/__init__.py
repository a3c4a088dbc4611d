"""Metrics: pure functions of scores and matches, or of embeddings in blocks."""

from bifocal.metrics.average_precision import average_precision, mean_average_precision
from bifocal.metrics.correlation import spearman
from bifocal.metrics.counting import score_ranks
from bifocal.metrics.intervals import retrieval_intervals
from bifocal.metrics.protocols import (
    PROTOCOLS,
    Protocol,
    protocol_ranks,
    protocol_score_ranks,
    split_folds,
    summarize_folds,
)
from bifocal.metrics.ranks import Ranks, ranks
from bifocal.metrics.reranking import rerank_for_captions, rerank_for_images
from bifocal.metrics.retrieval import chance_report, retrieval_ranks, summarize

__all__ = [
    "PROTOCOLS",
    "Protocol",
    "Ranks",
    "average_precision",
    "chance_report",
    "mean_average_precision",
    "protocol_ranks",
    "protocol_score_ranks",
    "ranks",
    "rerank_for_captions",
    "rerank_for_images",
    "retrieval_intervals",
    "retrieval_ranks",
    "score_ranks",
    "spearman",
    "split_folds",
    "summarize",
    "summarize_folds",
]
