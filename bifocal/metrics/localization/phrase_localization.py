"""Phrase localization over proposals: Plummer et al., ICCV 2015; Wang, Li and Lazebnik, CVPR 2016,
section 3.3."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from bifocal.metrics.localization.pointing import Floats, box_iou, check_boxes, nms
from bifocal.metrics.ranking.average_precision import average_precision
from bifocal.metrics.retrieval.ranks import concatenate, ranks

MIN_IOU = 0.5
"""IoU with a true box from which on a proposal is correct."""


@dataclass(frozen=True)
class ProposalQuery:
    """A phrase, and the scored proposals of its image.

    Attributes:
        phrase: equal phrases are one class of the mAP.
        scores: (P,), of the image's proposals.
        proposals: (P, 4), x0 y0 x1 y1 in pixels.
        truth: (n, 4), the phrase's true boxes.
    """

    phrase: Hashable
    scores: Floats
    proposals: Floats
    truth: Floats


def recall_over_proposals(
    queries: Sequence[ProposalQuery], ks: Iterable[int] = (1, 5, 10)
) -> dict[str, float]:
    """Return R@K in percent, and ``upper_bound``, the share of phrases with any correct proposal.

    A proposal is correct if its IoU with one of the phrase's boxes is at least 0.5. Tied proposals
    count as if each of their orders were equally likely. K beyond the number of proposals gives the
    upper bound.

    Raises:
        ValueError: there is no phrase, a phrase has no box, or a score is NaN.
    """
    _check(queries)
    rank_of_query = []
    for query in queries:
        correct = (box_iou(query.proposals, query.truth) >= MIN_IOU).any(axis=1)
        if correct.any():
            rank_of_query.append(
                ranks(*(torch.from_numpy(np.array(row))[None] for row in (query.scores, correct)))
            )
    upper_bound = len(rank_of_query) / len(queries)
    joined = concatenate(rank_of_query) if rank_of_query else None
    recall = {f"R@{k}": 100 * upper_bound * joined.recall(k) if joined else 0.0 for k in ks}
    return recall | {"upper_bound": 100 * upper_bound}


def with_union_boxes(queries: Iterable[ProposalQuery]) -> list[ProposalQuery]:
    """Return ``queries`` with the smallest box around a phrase's boxes in place of these.

    The protocol of a model that gives one box for a phrase of several objects, as in Kamath et al.,
    "MDETR", ICCV 2021.
    """
    return [
        replace(
            query,
            truth=np.concatenate([query.truth[:, :2].min(axis=0), query.truth[:, 2:].max(axis=0)])[
                None
            ],
        )
        for query in queries
    ]


def phrase_average_precision(queries: Sequence[ProposalQuery]) -> dict[Hashable, float]:
    """Return the AP of each unique phrase, in [0, 1], over the proposals that remain after
    suppression in each image.

    Of the proposals that match a true box, the best is correct and the others are wrong. True boxes
    without a correct proposal count as not retrieved.

    Raises:
        ValueError: there is no phrase, a phrase has no box, or a score is NaN.
    """
    _check(queries)
    scores: dict[Hashable, list[float]] = {}
    correct: dict[Hashable, list[bool]] = {}
    missed: dict[Hashable, int] = {}
    for query in queries:
        kept = nms(query.scores, query.proposals)
        iou = box_iou(query.proposals[kept], query.truth)
        taken = np.zeros(len(query.truth), dtype=bool)
        for overlaps, proposal in zip(iou, kept, strict=True):
            free = np.where(taken, -1.0, overlaps)
            hit = bool(free.max() >= MIN_IOU)
            taken[free.argmax()] |= hit
            scores.setdefault(query.phrase, []).append(float(query.scores[proposal]))
            correct.setdefault(query.phrase, []).append(hit)
        missed[query.phrase] = missed.get(query.phrase, 0) + int((~taken).sum())
    report: dict[Hashable, float] = {}
    for phrase, hits in correct.items():
        matches = torch.tensor(hits)
        retrieved = int(matches.sum())
        precision = (
            average_precision(torch.tensor(scores[phrase], dtype=torch.float64), matches)
            if retrieved
            else 0.0
        )
        report[phrase] = precision * retrieved / (retrieved + missed[phrase])
    return report


def _check(queries: Sequence[ProposalQuery]) -> None:
    if not queries:
        raise ValueError("there is no phrase to localize")
    check_boxes([query.truth for query in queries])
    for number, query in enumerate(queries):
        if len(query.scores) != len(query.proposals) or not len(query.scores):
            raise ValueError(
                f"phrase {number} has {len(query.scores)} scores of {len(query.proposals)} "
                "proposals: expected one score for each, and at least one"
            )
        if np.isnan(query.scores).any():
            raise ValueError(f"phrase {number}: {int(np.isnan(query.scores).sum())} scores are NaN")
