"""Metrics: pure functions of scores and matches, or of embeddings in blocks."""

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
    "chance_report",
    "ranks",
    "rerank_for_captions",
    "rerank_for_images",
    "retrieval_ranks",
    "summarize",
]
