"""Figures and curves of cross-modal retrieval."""

from typing import Any

import pandas as pd

from bifocal.metrics import chance_report, retrieval_intervals, summarize_folds
from bifocal.metrics.retrieval.ranks import joined
from components.evaluate.measure import Measured
from components.evaluate.spec import EvaluateParams

DIRECTIONS = ("caption_retrieval", "image_retrieval")
SECTIONS = ("pointing", "phrase_localization", "objects", "semantic", "triplets", "modifiers")
COUNTS = ("low", "high", "phrases", "chosen_on", "unique", "categories", "objects", "queries", "triplets", "left_out")


def retrieval_figures(params: EvaluateParams, measured: Measured) -> dict[str, Any]:
    """R@K and ranks of both directions, with intervals, re-ranked, and of chance: of ``metrics.json``."""
    found = summarize_folds(measured.plain, params.recall_at)
    of = measured.image_of_query()
    return {
        **found,
        "recall_sum": sum(value for part in found.values() for key, value in part.items() if key.startswith("R@")),
        "intervals": retrieval_intervals(
            measured.all_ranks(), of, params.recall_at, resamples=params.resamples, seed=params.seed
        ),
        "reranked": summarize_folds(measured.reranked, params.recall_at),
        "chance": chance_report(measured.folds[0].image_of_caption, params.recall_at),
        "images": sum(len(fold.images) for fold in measured.folds),
        "captions": sum(len(fold.captions) for fold in measured.folds),
    }


def recall_curves(params: EvaluateParams, measured: Measured) -> pd.DataFrame:
    """R@K in percent of each K: column K, and one for each direction, plain and re-ranked."""
    ks = range(1, 1 + min(params.curve_to, len(measured.folds[0].images)))
    columns = {
        f"{direction}{suffix}": [100 * joined(both[side] for both in folds).recall(k) for k in ks]
        for suffix, folds in (("", measured.plain), ("_reranked", measured.reranked))
        for side, direction in enumerate(DIRECTIONS)
    }
    return pd.DataFrame({"K": ks} | columns)


def tracked(figures: dict[str, Any]) -> dict[str, float]:
    """The figures to track: not the intervals, not what chance gives, not what was counted on the way."""
    kept: dict[str, float] = {"recall_sum": figures["recall_sum"]}
    for prefix, part in (("", figures), ("reranked.", figures["reranked"])):
        for direction in DIRECTIONS:
            kept |= {f"{prefix}{direction}.{name}": value for name, value in part[direction].items()}
    for section in SECTIONS:
        values = {name: value for name, value in figures.get(section, {}).items() if name not in COUNTS}
        kept |= {f"{section}.{name}": value for name, value in values.items() if not isinstance(value, dict)}
    return kept
