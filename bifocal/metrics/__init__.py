"""Metrics: pure functions of scores and matches, or of embeddings in blocks."""

from bifocal.metrics.average_precision import average_precision, mean_average_precision
from bifocal.metrics.boxes import box_iou, suppress
from bifocal.metrics.correlation import spearman
from bifocal.metrics.counting import score_ranks
from bifocal.metrics.intervals import retrieval_intervals
from bifocal.metrics.modifiers import modified_queries, modifier_precision
from bifocal.metrics.objects import mask_iou, mask_map, point_map
from bifocal.metrics.phrase_localization import Proposed, phrase_average_precision, recall_over_proposals
from bifocal.metrics.pointing import accuracy_by, centre_hits, pointing_hits, random_chances
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
from bifocal.metrics.semantic import area_under, choose_queries, match_kernel, semantic_curves, triplet_agreement
from bifocal.metrics.voc import voc_average_precision

__all__ = [
    "PROTOCOLS",
    "Proposed",
    "Protocol",
    "Ranks",
    "accuracy_by",
    "area_under",
    "average_precision",
    "box_iou",
    "centre_hits",
    "chance_report",
    "choose_queries",
    "mask_iou",
    "mask_map",
    "match_kernel",
    "mean_average_precision",
    "modified_queries",
    "modifier_precision",
    "phrase_average_precision",
    "point_map",
    "pointing_hits",
    "protocol_ranks",
    "protocol_score_ranks",
    "random_chances",
    "ranks",
    "recall_over_proposals",
    "rerank_for_captions",
    "rerank_for_images",
    "retrieval_intervals",
    "retrieval_ranks",
    "score_ranks",
    "semantic_curves",
    "spearman",
    "split_folds",
    "summarize",
    "summarize_folds",
    "suppress",
    "triplet_agreement",
    "voc_average_precision",
]
