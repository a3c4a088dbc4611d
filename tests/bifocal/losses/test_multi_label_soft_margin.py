"""MultiLabelSoftMarginLoss against a loop over its equation."""

from math import exp, log

import pytest
import torch

from bifocal.losses import MultiLabelSoftMarginLoss
from bifocal.scores import Scores


def test_multi_label_soft_margin_is_the_cross_entropy_of_each_label():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    matches = torch.rand(3, 7, generator=generator) > 0.5
    expected = [
        -log(1 / (1 + exp(-score if match else score)))
        for row, truth in zip(scores.tolist(), matches.tolist(), strict=True)
        for score, match in zip(row, truth, strict=True)
    ]
    assert MultiLabelSoftMarginLoss()(Scores(scores), matches).item() == pytest.approx(
        sum(expected) / 21
    )
