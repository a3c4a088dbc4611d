"""Recall and average precision of proposals in worked cases."""

import numpy as np
import pytest

from bifocal.metrics import ProposalQuery, phrase_average_precision, recall_over_proposals

GOOD, NEAR, WRONG = [0.0, 0, 10, 10], [0.0, 0, 10, 19], [50.0, 50, 60, 60]


def five_images() -> list[ProposalQuery]:
    truth = np.array([GOOD])
    rows = (
        ("dog", [3.0, 1.0], [GOOD, WRONG]),
        ("dog", [1.0, 3.0], [GOOD, WRONG]),
        ("cat", [2.0, 2.0], [GOOD, WRONG]),
        ("cat", [5.0], [NEAR]),
        ("sky", [5.0], [WRONG]),
    )
    return [
        ProposalQuery(name, np.array(scores), np.array(boxes), truth)
        for name, scores, boxes in rows
    ]


def test_phrase_localization_of_worked_case() -> None:
    """By hand.

    0: correct proposal first. 1: second. 2: tied with a wrong one, so first with probability 1/2.
    3: IoU 10/19 = 0.53, correct. 4: no correct proposal. R@1 = (1 + 0 + 1/2 + 1 + 0) / 5, R@5 =
    R@10 = upper bound = 4/5.

    AP, dog: all proposals by score: 3 (correct, image 0), 3 (wrong, image 1), 1 (wrong), 1
    (correct). The two of each score are tied: precision at the first correct one is 1 or 1/2 by
    their order, at the second, at rank 3 or 4, 2/3 or 2/4:
    (3/4 + 7/12) / 2 = 2/3. cat: 5 (correct), then 2 (correct) and 2 (wrong) in either order: (1 +
    (1 + 2/3) / 2) / 2, 11/12. sky: its box has no correct proposal, 0.
    """
    assert recall_over_proposals(five_images()) == pytest.approx(
        {"R@1": 50.0, "R@5": 80.0, "R@10": 80.0, "upper_bound": 80.0}
    )
    assert phrase_average_precision(five_images()) == pytest.approx(
        {"dog": 2 / 3, "cat": 11 / 12, "sky": 0.0}
    )


def test_phrase_average_precision_counts_each_true_box_once() -> None:
    """Two proposals on one of two boxes, neither suppressed: one correct of two true boxes,
    precision 1, halved."""
    truth = np.array([[0.0, 0, 10, 10], [50.0, 50, 60, 60]])
    proposals = np.array([[0.0, 0, 5.5, 10], [4.5, 0, 10, 10]])
    query = ProposalQuery("dog", np.array([2.0, 1.0]), proposals, truth)
    assert phrase_average_precision([query]) == {"dog": 0.5}


def test_recall_over_proposals_rejects_invalid_scores() -> None:
    def query(scores: list[float]) -> ProposalQuery:
        return ProposalQuery("dog", np.array(scores), np.array([GOOD]), np.array([GOOD]))

    for wrong, expected in (([], "0 scores of 1 proposals"), ([np.nan], "1 scores are NaN")):
        with pytest.raises(ValueError, match=expected):
            recall_over_proposals([query(wrong)])
    with pytest.raises(ValueError, match="no phrase to localize"):
        recall_over_proposals([])
