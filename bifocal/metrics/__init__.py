"""Metrics: pure functions of scores and matches, or of embeddings in blocks."""

from bifocal.metrics.localization.objects import (
    mask_iou,
    mask_mean_ap,
    mask_mean_ap_of_overlaps,
    point_mean_ap,
)
from bifocal.metrics.localization.phrase_localization import (
    ProposalQuery,
    phrase_average_precision,
    recall_over_proposals,
    with_union_boxes,
)
from bifocal.metrics.localization.pointing import (
    accuracy_by,
    box_iou,
    center_baseline,
    nms,
    pointing_hits,
    random_baseline,
)
from bifocal.metrics.ranking.average_precision import (
    average_precision,
    mean_average_precision,
    spearman,
)
from bifocal.metrics.ranking.semantic import (
    area_under,
    choose_queries,
    inter_user_agreement,
    match_kernel,
    semantic_curves,
    triplet_agreement,
)
from bifocal.metrics.retrieval.blockwise_ranks import score_ranks
from bifocal.metrics.retrieval.modifiers import modified_queries, modifier_precision
from bifocal.metrics.retrieval.precision import chance_precision, precision_at_r
from bifocal.metrics.retrieval.protocols import (
    PROTOCOLS,
    Protocol,
    protocol_precision,
    protocol_ranks,
    protocol_score_ranks,
    split_folds,
    summarize_folds,
)
from bifocal.metrics.retrieval.ranks import Ranks, ranks, rerank_for_captions, rerank_for_images
from bifocal.metrics.retrieval.recall import (
    chance_report,
    recall_sum_gain,
    retrieval_intervals,
    retrieval_ranks,
    summarize,
)
