"""What the losses on ranks share: gradients through a sorter, its fine-tuning, the auxiliary
loss."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from bifocal.losses import (
    MeanAveragePrecisionLoss,
    MultiLabelSoftMarginLoss,
    RecallLoss,
    RegressionLoss,
    SpearmanLoss,
)
from bifocal.scores import Scores
from bifocal.sorters import PairwiseSorter, PositionwiseLSTMSorter
from bifocal.training.pretraining.sorter import rank_l1

LOSSES = [SpearmanLoss, MeanAveragePrecisionLoss, RecallLoss]
SURROGATES = ["triplet", "rank", "log_rank", "recall"]


def random_scores(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(
        rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def captions_of(images: int, captions: int) -> Tensor:
    """Caption m describes image m modulo N: an image has no, one or several captions."""
    return torch.arange(images)[:, None] == torch.arange(captions) % images


@pytest.mark.parametrize(
    "loss",
    [
        SpearmanLoss,
        MeanAveragePrecisionLoss,
        *(lambda sorter, s=s: RecallLoss(sorter, s) for s in SURROGATES),
    ],
)
def test_gradient_through_a_soft_sorter_is_the_gradient_of_the_loss(loss):
    smooth = loss(PairwiseSorter(steepness=2.0))
    # No row and no column has a second positive: its score behind all others is a constant of the
    # gradient.
    matches = captions_of(7, 3)
    assert gradcheck(
        lambda scores: smooth(Scores(scores), matches), 0.3 * random_scores(7, 3).requires_grad_()
    )


@pytest.mark.parametrize(
    ("loss", "auxiliary"),
    [
        (SpearmanLoss, RegressionLoss(power=1)),
        (MeanAveragePrecisionLoss, MultiLabelSoftMarginLoss()),
    ],
)
def test_auxiliary_loss_is_the_loss_of_the_task_without_a_sorter(loss, auxiliary):
    scores, matches = Scores(random_scores(3, 7)), random_scores(3, 7, seed=1) > 0
    added = loss(auxiliary_weight=1.0)(scores, matches) - loss()(scores, matches)
    torch.testing.assert_close(added, auxiliary(scores, matches))


@pytest.mark.parametrize("loss", LOSSES)
class TestAuxiliaryLoss:
    def test_is_added_with_its_weight_during_its_steps(self, loss):
        scores, matches = Scores(random_scores(4, 4)), captions_of(4, 4)
        limited = loss(auxiliary_weight=0.5, auxiliary_steps=2)
        base = loss()(scores, matches)
        auxiliary = loss(auxiliary_weight=1.0)(scores, matches) - base
        assert auxiliary > 0
        for step in range(4):
            expected = base + (0.5 * auxiliary if step < 2 else 0)
            torch.testing.assert_close(limited(scores, matches), expected)

    def test_keeps_its_step_counter_in_its_state(self, loss):
        scores, matches = Scores(random_scores(4, 4)), captions_of(4, 4)
        first, second = (
            loss(auxiliary_weight=1.0, auxiliary_steps=1),
            loss(auxiliary_weight=1.0, auxiliary_steps=1),
        )
        first(scores, matches)
        second.load_state_dict(first.state_dict())
        torch.testing.assert_close(second(scores, matches), loss()(scores, matches))


@pytest.mark.parametrize("loss", LOSSES)
class TestPretrainedSorter:
    def sorter(self) -> nn.Module:
        torch.manual_seed(0)
        return PositionwiseLSTMSorter(length=8, hidden=8, layers=1)

    def test_is_frozen(self, loss):
        built, scores = loss(self.sorter()), random_scores(8, 8).float().requires_grad_()
        built(Scores(scores), captions_of(8, 8)).backward()
        assert scores.grad is not None
        assert scores.grad.abs().sum() > 0
        assert all(
            weight.grad is None and not weight.requires_grad for weight in built.parameters()
        )

    def test_is_fine_tuned_on_its_own_error_only(self, loss):
        sorter, scores = self.sorter(), random_scores(8, 8).float()
        built = loss(sorter, fine_tune=1.0)
        optimizer = torch.optim.Adam(built.parameters(), lr=0.01)
        before = rank_l1(sorter, scores)
        for _ in range(100):
            optimizer.zero_grad()
            built(Scores(scores), captions_of(8, 8)).backward()
            optimizer.step()
        assert rank_l1(sorter, scores) < before / 2

    def test_fine_tuning_does_not_change_the_gradient_of_the_scores(self, loss):
        gradients = []
        for fine_tune in (0.0, 1.0):
            scores = random_scores(8, 8).float().requires_grad_()
            loss(self.sorter(), fine_tune=fine_tune)(Scores(scores), captions_of(8, 8)).backward()
            gradients.append(scores.grad)
        torch.testing.assert_close(*gradients)


def test_fine_tuning_rejects_a_sorter_without_weights():
    with pytest.raises(ValueError, match="ExactRankSorter has no weights"):
        RecallLoss(fine_tune=1.0)
