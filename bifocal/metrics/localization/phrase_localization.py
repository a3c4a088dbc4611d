"""Phrase localization over proposals: which of an image's proposals is the phrase's box?

Plummer et al., "Flickr30k Entities", ICCV 2015, as Wang, Li and Lazebnik, CVPR 2016, section 3.3, report it.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bifocal.metrics.localization.boxes import Floats, box_iou, suppress
from bifocal.metrics.localization.pointing import check_boxes
from bifocal.metrics.ranking.average_precision import average_precision

MATCH = 0.5
"""IoU with the true box at which a proposal is correct."""


@dataclass(frozen=True)
class Proposed:
    """One phrase in one image.

    Attributes:
        phrase: what is looked for; phrases that are equal are one class of the mAP.
        scores: (P,), of the image's proposals.
        proposals: (P, 4), x0 y0 x1 y1 in pixels.
        truth: (n, 4), the phrase's boxes.
    """

    phrase: Hashable
    scores: Floats
    proposals: Floats
    truth: Floats


def recall_over_proposals(queries: Sequence[Proposed], ks: Iterable[int] = (1, 5, 10)) -> dict[str, float]:
    """R@K in percent, and ``upper_bound``, the share of the phrases that have a correct proposal at all.

    A proposal is correct if its IoU with one of the phrase's boxes is at least 0.5. Tied proposals count as if each of
    their orders were equally likely. K beyond the number of proposals gives the upper bound.

    Raises:
        ValueError: there is no phrase, one has no box, or a score is NaN.
    """
    import torch

    from bifocal.metrics.retrieval.ranks import joined, ranks

    _check(queries)
    found, possible = [], 0
    for query in queries:
        correct = _correct(query)
        if correct.any():
            possible += 1
            found.append(ranks(*(torch.from_numpy(np.array(row))[None] for row in (query.scores, correct))))
    share = possible / len(queries)
    both = joined(found) if found else None
    report = {f"R@{k}": 100 * share * both.recall(k) if both else 0.0 for k in ks}
    return report | {"upper_bound": 100 * share}


def phrase_average_precision(queries: Sequence[Proposed], overlap: float = 0.3) -> dict[Hashable, float]:
    """AP of each unique phrase, in [0, 1]: its boxes in all images that have it, ranked after suppression in each.

    A true box is found once: of the proposals that match it the best is correct, the others are not. Boxes that no
    proposal finds lower the precision that is averaged, at zero.

    Args:
        overlap: IoU above which a worse proposal is suppressed.

    Raises:
        ValueError: as above.
    """
    import torch

    _check(queries)
    scores: dict[Hashable, list[float]] = {}
    correct: dict[Hashable, list[bool]] = {}
    missed: dict[Hashable, int] = {}
    for query in queries:
        kept = suppress(query.scores, query.proposals, overlap)
        iou = box_iou(query.proposals[kept], query.truth)
        taken = np.zeros(len(query.truth), dtype=bool)
        for row, place in zip(iou, kept, strict=True):
            free = np.where(taken, -1.0, row)
            hit = bool(free.max() >= MATCH)
            taken[free.argmax()] |= hit
            scores.setdefault(query.phrase, []).append(float(query.scores[place]))
            correct.setdefault(query.phrase, []).append(hit)
        missed[query.phrase] = missed.get(query.phrase, 0) + int((~taken).sum())
    report: dict[Hashable, float] = {}
    for phrase, hits in correct.items():
        matches = torch.tensor(hits)
        reached = int(matches.sum())
        precision = average_precision(torch.tensor(scores[phrase], dtype=torch.float64), matches) if reached else 0.0
        report[phrase] = precision * reached / (reached + missed[phrase])
    return report


def _correct(query: Proposed) -> np.ndarray:
    return np.asarray((box_iou(query.proposals, query.truth) >= MATCH).any(axis=1))


def _check(queries: Sequence[Proposed]) -> None:
    if not queries:
        raise ValueError("there is no phrase to localize")
    check_boxes([query.truth for query in queries])
    for number, query in enumerate(queries):
        if len(query.scores) != len(query.proposals) or not len(query.scores):
            raise ValueError(
                f"phrase {number} has {len(query.scores)} scores of {len(query.proposals)} proposals: expected one "
                "score for each, and at least one"
            )
        if np.isnan(query.scores).any():
            raise ValueError(f"phrase {number}: {int(np.isnan(query.scores).sum())} scores are NaN")
