"""HingeAveragePrecisionLoss against a search over all rankings."""

from itertools import permutations

import pytest
import torch

from bifocal.losses import HingeAveragePrecisionLoss
from bifocal.scores import Scores


def structured_hinge(scores: list[float], matches: list[bool]) -> float:
    """max over rankings y of [1 - AP(y) + S(y)] - S(y*), by enumeration."""
    places = range(len(scores))
    pairs = [(i, j) for i in places for j in places if matches[i] and not matches[j]]

    def score(above: dict[tuple[int, int], bool]) -> float:
        return sum(
            (1 if above[pair] else -1) * (scores[pair[0]] - scores[pair[1]]) for pair in pairs
        ) / len(pairs)

    violations = []
    for order in permutations(places):
        rank = {element: position for position, element in enumerate(order)}
        positives = [element for element in places if matches[element]]
        precisions = [sum(rank[k] <= rank[i] for k in positives) / (rank[i] + 1) for i in positives]
        violations.append(
            1
            - sum(precisions) / len(precisions)
            + score({(i, j): rank[i] < rank[j] for i, j in pairs})
        )
    return max(violations) - score(dict.fromkeys(pairs, True))


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("matches", ["10", "0110", "101001", "000100", "11011"])
def test_loss_is_the_maximum_over_all_rankings(matches: str, scale: float) -> None:
    truth = [letter == "1" for letter in matches]
    scores = scale * torch.randn(
        len(truth), generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    loss = HingeAveragePrecisionLoss()(Scores(scores[None]), torch.tensor([truth]))
    assert loss.item() == pytest.approx(structured_hinge(scores.tolist(), truth), abs=1e-12)


def test_classes_without_matches_or_negatives_are_left_out() -> None:
    scores = torch.tensor([[0.0, 0.0], [9.0, 1.0], [1.0, 9.0]], requires_grad=True)
    loss = HingeAveragePrecisionLoss()
    assert (
        loss(Scores(scores), torch.tensor([[True, False], [True, True], [False, False]])).item()
        == 0.5
    )
    nothing = loss(Scores(scores), torch.zeros(3, 2, dtype=torch.bool))
    nothing.backward()
    assert nothing.item() == 0
