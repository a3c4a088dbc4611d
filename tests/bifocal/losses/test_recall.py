"""RecallLoss against loops over its equations."""

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bifocal.losses import HardestTripletLoss, RecallLoss
from bifocal.losses.recall import rank_each_match
from bifocal.scores import Scores
from bifocal.sorters import PairwiseSorter
from bifocal.sorters.ranks import exact_ranks

SURROGATES = ["triplet", "rank", "log_rank", "recall"]


def random_scores(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(
        rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def captions_of(images: int, captions: int) -> Tensor:
    """Caption m describes image m modulo N: an image has no, one or several captions."""
    return torch.arange(images)[:, None] == torch.arange(captions) % images


def rank(scores: list[float], i: int) -> int:
    return sum(other > scores[i] for other in scores)


def recall_costs(
    scores: list[list[float]], matches: list[list[bool]], surrogate: str
) -> list[float]:
    """Cost of every match in every row, in a ranking without the row's other positives."""
    costs = []
    for y, truth in zip(scores, matches, strict=True):
        negatives = [y[j] for j in range(len(y)) if not truth[j]]
        for p in (j for j in range(len(y)) if truth[j]):
            ranking = [y[p], *negatives]
            r = rank(ranking, 0)
            if surrogate == "triplet":
                hardest = min(
                    (rank(ranking, c) for c in range(1, len(ranking))), default=float("inf")
                )
                costs.append(max(0.0, 1.0 + r - hardest) / len(y))
            elif surrogate == "rank":
                costs.append(r / len(y))
            elif surrogate == "log_rank":
                costs.append(log(1 + r))
            else:
                costs.append(sum(1 / (1 + exp(-(r - k + 0.5))) for k in (1, 5, 10)) / 3)
    return costs


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize(("images", "captions"), [(1, 1), (5, 5), (4, 11), (6, 4), (1, 3)])
def test_recall_is_its_equation_in_both_directions(images, captions, surrogate):
    scores, matches = random_scores(images, captions), captions_of(images, captions)
    expected = 0.0
    for y, truth in ((scores, matches), (scores.T, matches.T)):
        costs = recall_costs(y.tolist(), truth.tolist(), surrogate)
        expected += sum(costs) / len(costs)
    assert RecallLoss(surrogate=surrogate)(Scores(scores), matches).item() == pytest.approx(
        expected
    )


@given(seed=st.integers(0, 2**32 - 1), images=st.integers(1, 6), captions=st.integers(1, 9))
def test_recall_is_invariant_to_transposition_order_scale_and_shift(seed, images, captions):
    scores, matches = random_scores(images, captions, seed), captions_of(images, captions)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (
        torch.randperm(images, generator=generator),
        torch.randperm(captions, generator=generator),
    )
    loss = RecallLoss()
    expected = loss(Scores(scores), matches)
    torch.testing.assert_close(loss(Scores(scores.T), matches.T), expected)
    torch.testing.assert_close(
        loss(Scores(scores[rows][:, columns]), matches[rows][:, columns]), expected
    )
    torch.testing.assert_close(loss(Scores(100 * scores - 3), matches), expected)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_recall_gradient_steps_bring_the_matches_to_the_top(surrogate):
    scores, matches = random_scores(8, 16).requires_grad_(), captions_of(8, 16)
    optimizer = torch.optim.Adam([scores], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        RecallLoss(surrogate=surrogate)(Scores(scores), matches).backward()
        optimizer.step()
    for y, truth in ((scores, matches), (scores.T, matches.T)):
        assert (
            y.masked_fill(~truth, torch.inf).amin(dim=1)
            > y.masked_fill(truth, -torch.inf).amax(dim=1)
        ).all()


def test_recall_of_a_batch_without_a_match_is_zero():
    scores = random_scores(3, 4).requires_grad_()
    loss = RecallLoss()(Scores(scores), torch.zeros(3, 4, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0


def test_recall_auxiliary_loss_is_the_hardest_triplet():
    scores, matches = Scores(random_scores(4, 6)), captions_of(4, 6)
    added = RecallLoss(auxiliary_weight=1.0)(scores, matches) - RecallLoss()(scores, matches)
    torch.testing.assert_close(added, HardestTripletLoss()(scores, matches))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"surrogate": "rank", "margin": 2.0},
            "margin is for surrogate 'triplet', but surrogate is 'rank'",
        ),
        ({"ks": [1]}, "ks is for surrogate 'recall', but surrogate is 'triplet'"),
        ({"auxiliary_steps": 9}, "set auxiliary_weight too, or leave auxiliary_steps out"),
    ],
)
def test_recall_explains_arguments_without_effect(arguments, message):
    assert message in " ".join(RecallLoss.conflicts(arguments))


def test_recall_accepts_arguments_of_its_surrogate():
    assert not list(RecallLoss.conflicts({"surrogate": "recall", "ks": [1], "softness": 2.0}))
    assert not list(
        RecallLoss.conflicts({"margin": 2.0, "auxiliary_weight": 1.0, "auxiliary_steps": 9})
    )


@pytest.mark.parametrize(
    "scores", [[0.3, 0.3, 0.3, 0.3], [1e4, 1e4 + 0.002, 1e4 + 0.001, 1e4 + 0.001]]
)
def test_exact_ranks_ignore_other_positives_of_tied_and_of_large_scores(
    scores: list[float],
) -> None:
    row, matches = torch.tensor([scores]), torch.tensor([[True, True, False, False]])
    found = rank_each_match(row, matches)
    ranks = exact_ranks(found.scores).gather(1, found.match)[:, 0].tolist()
    for number, caption in enumerate((0, 1)):
        alone = exact_ranks(row[:, [caption, 2, 3]])[0, 0]
        assert ranks[number] == alone


def test_a_soft_sorter_ranks_other_positives_as_negatives_of_a_low_score() -> None:
    scores, matches = (
        torch.tensor([[0.9, 0.8, 0.1]], dtype=torch.float64),
        torch.tensor([[True, True, False]]),
    )
    sorter = PairwiseSorter()
    found = rank_each_match(scores, matches)
    behind = 0.1 - 0.01 * 0.8
    expected = [
        sorter(torch.tensor([values], dtype=torch.float64))[0]
        for values in ([0.9, behind, 0.1], [behind, 0.8, 0.1])
    ]
    torch.testing.assert_close(sorter(found.scores), torch.stack(expected))
