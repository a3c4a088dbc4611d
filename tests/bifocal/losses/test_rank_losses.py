"""Rank losses against loops over their equations, on true ranks and through soft ones."""

from math import exp, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck

from bifocal.losses import HardestTripletLoss, MeanAveragePrecisionLoss, RecallLoss, SpearmanLoss
from bifocal.pretraining.sorter import rank_l1
from bifocal.scores import Scores
from bifocal.sorters import BifocalSorter, LSTMSorter, PairwiseSorter

LOSSES = [SpearmanLoss, MeanAveragePrecisionLoss, RecallLoss]
SURROGATES = ["triplet", "rank", "log_rank", "recall"]


def random_scores(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def captions_of(images: int, captions: int) -> Tensor:
    """Caption m describes image m modulo N: an image has none, one or several."""
    return torch.arange(images)[:, None] == torch.arange(captions) % images


def rank(scores: list[float], i: int) -> int:
    return sum(other > scores[i] for other in scores)


def spearman(a: list[float], b: list[float]) -> float:
    """Eq. (5.4)."""
    d = len(a)
    return 1 - 6 * sum((rank(a, i) - rank(b, i)) ** 2 for i in range(d)) / (d * (d**2 - 1))


def eq_5_9(scores: list[list[float]], matches: list[list[bool]]) -> float:
    """The mean over classes of the mean rank of what matches, ranks divided by n."""
    classes = []
    for y, truth in zip(scores, matches, strict=True):
        found = [rank(y, j) / len(y) for j in range(len(y)) if truth[j]]
        if found:
            classes.append(sum(found) / len(found))
    return sum(classes) / len(classes)


def recall_costs(scores: list[list[float]], matches: list[list[bool]], surrogate: str) -> list[float]:
    """The cost of every match of every row, each in a ranking from which the other positives are taken out."""
    costs = []
    for y, truth in zip(scores, matches, strict=True):
        negatives = [y[j] for j in range(len(y)) if not truth[j]]
        for p in (j for j in range(len(y)) if truth[j]):
            ranking = [y[p], *negatives]
            r = rank(ranking, 0)
            if surrogate == "triplet":
                hardest = min((rank(ranking, c) for c in range(1, len(ranking))), default=float("inf"))
                costs.append(max(0.0, 1.0 + r - hardest))
            elif surrogate == "rank":
                costs.append(r / len(y))
            elif surrogate == "log_rank":
                costs.append(log(1 + r))
            else:
                costs.append(sum(1 / (1 + exp(-(r - k + 0.5))) for k in (1, 5, 10)) / 3)
    return costs


@pytest.mark.parametrize("n", [2, 3, 20])
def test_spearman_loss_is_one_minus_eq_5_4(n):
    scores, targets = random_scores(3, n), random_scores(3, n, seed=1)
    expected = [1 - spearman(a, b) for a, b in zip(scores.tolist(), targets.tolist(), strict=True)]
    assert SpearmanLoss(BifocalSorter())(Scores(scores), targets).item() == pytest.approx(sum(expected) / 3)


def test_by_itself_spearman_loss_is_smooth():
    scores, targets = random_scores(3, 9), random_scores(3, 9, seed=1)
    torch.testing.assert_close(
        SpearmanLoss()(Scores(scores), targets), SpearmanLoss(BifocalSorter(exact=False))(Scores(scores), targets)
    )
    # Where scores are many bandwidths apart, soft ranks are the exact ones, and so is the loss.
    apart = scores.argsort(dim=1).argsort(dim=1).double()
    found = SpearmanLoss(BifocalSorter(0.001, 100.0, exact=False))(Scores(apart), targets)
    torch.testing.assert_close(found, SpearmanLoss(BifocalSorter())(Scores(apart), targets), rtol=1e-3, atol=1e-3)


def test_mean_average_precision_loss_is_eq_5_9():
    scores = random_scores(6, 15)
    matches = random_scores(6, 15, seed=1) > 0.8
    matches[2] = False  # a class that is not in the batch
    loss = MeanAveragePrecisionLoss()(Scores(scores), matches)
    assert loss.item() == pytest.approx(eq_5_9(scores.tolist(), matches.tolist()))


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize(("images", "captions"), [(1, 1), (5, 5), (4, 11), (6, 4), (1, 3)])
def test_recall_loss_is_its_equation_in_both_directions(images, captions, surrogate):
    scores, matches = random_scores(images, captions), captions_of(images, captions)
    expected = 0.0
    for y, truth in ((scores, matches), (scores.T, matches.T)):
        costs = recall_costs(y.tolist(), truth.tolist(), surrogate)
        expected += sum(costs) / len(costs)
    assert RecallLoss(surrogate=surrogate)(Scores(scores), matches).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    "loss", [SpearmanLoss, MeanAveragePrecisionLoss, *(lambda sorter, s=s: RecallLoss(sorter, s) for s in SURROGATES)]
)
def test_gradient_through_a_soft_sorter_is_that_of_the_loss(loss):
    sorted_by = loss(PairwiseSorter(steepness=2.0))
    # No second positive anywhere: the place behind all others, where it would stand, is a constant of the gradient.
    matches = captions_of(7, 3)
    assert gradcheck(lambda scores: sorted_by(Scores(scores), matches), 0.3 * random_scores(7, 3).requires_grad_())


@given(seed=st.integers(0, 2**32 - 1), images=st.integers(1, 6), captions=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_recall_loss_sees_no_direction_no_order_no_scale_and_no_shift(seed, images, captions):
    scores, matches = random_scores(images, captions, seed), captions_of(images, captions)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.randperm(images, generator=generator), torch.randperm(captions, generator=generator)
    loss = RecallLoss()
    expected = loss(Scores(scores), matches)
    torch.testing.assert_close(loss(Scores(scores.T), matches.T), expected)
    torch.testing.assert_close(loss(Scores(scores[rows][:, columns]), matches[rows][:, columns]), expected)
    torch.testing.assert_close(loss(Scores(100 * scores - 3), matches), expected)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_steps_against_the_gradient_bring_the_matches_to_the_top(surrogate):
    scores, matches = random_scores(8, 16).requires_grad_(), captions_of(8, 16)
    optimizer = torch.optim.Adam([scores], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        RecallLoss(surrogate=surrogate)(Scores(scores), matches).backward()
        optimizer.step()
    for y, truth in ((scores, matches), (scores.T, matches.T)):
        assert (y.masked_fill(~truth, torch.inf).amin(dim=1) > y.masked_fill(truth, -torch.inf).amax(dim=1)).all()


def test_a_batch_without_a_match_costs_nothing():
    scores = random_scores(3, 4).requires_grad_()
    loss = RecallLoss()(Scores(scores), torch.zeros(3, 4, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_shapes_that_differ_are_refused(loss):
    with pytest.raises(ValueError, match="differ"):
        loss()(Scores(random_scores(3, 4)), captions_of(4, 3))


def test_a_group_of_one_has_no_correlation():
    with pytest.raises(ValueError, match="two scores or more"):
        SpearmanLoss()(Scores(random_scores(3, 1)), random_scores(3, 1))


@pytest.mark.parametrize("loss", LOSSES)
class TestAlignment:
    def test_is_added_with_its_weight_for_its_steps(self, loss):
        scores, matches = Scores(random_scores(4, 4)), captions_of(4, 4)
        plain, alone = loss(), loss(alignment_weight=1.0)
        aligned = loss(alignment_weight=0.5, alignment_steps=2)
        base = plain(scores, matches)
        parallel = alone(scores, matches) - base
        assert parallel > 0
        for step in range(4):
            expected = base + (0.5 * parallel if step < 2 else 0)
            torch.testing.assert_close(aligned(scores, matches), expected)

    def test_counts_its_steps_in_its_state(self, loss):
        scores, matches = Scores(random_scores(4, 4)), captions_of(4, 4)
        first, second = loss(alignment_weight=1.0, alignment_steps=1), loss(alignment_weight=1.0, alignment_steps=1)
        first(scores, matches)
        second.load_state_dict(first.state_dict())
        torch.testing.assert_close(second(scores, matches), loss()(scores, matches))


def test_the_parallel_loss_of_recall_is_the_hardest_triplet():
    scores, matches = Scores(random_scores(4, 6)), captions_of(4, 6)
    added = RecallLoss(alignment_weight=1.0)(scores, matches) - RecallLoss()(scores, matches)
    torch.testing.assert_close(added, HardestTripletLoss()(scores, matches))


@pytest.mark.parametrize("loss", LOSSES)
class TestTrainedSorter:
    def sorter(self) -> nn.Module:
        torch.manual_seed(0)
        return LSTMSorter(length=8, hidden=8, layers=1)

    def test_stays_as_it_is(self, loss):
        built, scores = loss(self.sorter()), random_scores(8, 8).float().requires_grad_()
        built(Scores(scores), captions_of(8, 8)).backward()
        assert scores.grad is not None
        assert scores.grad.abs().sum() > 0
        assert all(weight.grad is None and not weight.requires_grad for weight in built.parameters())

    def test_is_fine_tuned_by_its_own_error_alone(self, loss):
        sorter, scores = self.sorter(), random_scores(8, 8).float()
        built = loss(sorter, fine_tune=1.0)
        optimizer = torch.optim.Adam(built.parameters(), lr=0.01)
        before = rank_l1(sorter, scores)
        for _ in range(100):
            optimizer.zero_grad()
            built(Scores(scores), captions_of(8, 8)).backward()
            optimizer.step()
        assert rank_l1(sorter, scores) < before / 2

    def test_gives_the_scores_the_same_gradient_when_it_is_fine_tuned(self, loss):
        found = []
        for fine_tune in (0.0, 1.0):
            scores = random_scores(8, 8).float().requires_grad_()
            loss(self.sorter(), fine_tune=fine_tune)(Scores(scores), captions_of(8, 8)).backward()
            found.append(scores.grad)
        torch.testing.assert_close(*found)


def test_there_is_nothing_to_fine_tune_in_a_sorter_without_weights():
    with pytest.raises(ValueError, match="BifocalSorter has no weights"):
        RecallLoss(fine_tune=1.0)
