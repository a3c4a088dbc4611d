"""Precision of queries with an added word."""

import pytest
import torch

from bifocal.metrics import modifier_precision


def test_modifier_equal_to_concept_raises_precision() -> None:
    # Two directions: what the scene is, and whether it shows the concept.
    images = torch.nn.functional.normalize(
        torch.tensor([[1.0, 0], [1, 0.1], [1, 2], [1, 1.9], [0.2, 2]]), dim=1
    )
    shows = torch.tensor([[False, False, True, True, True]])
    values = modifier_precision(
        images, torch.tensor([0]), torch.tensor([[0.0, 1.0]]), shows, weight=3.0, r=2
    )
    assert (values["before"], values["after"], values["chance"]) == (50.0, 100.0, 75.0)
    assert 0 < values["kept"] < 1


def test_invalid_input_is_rejected() -> None:
    images, queries, texts = torch.eye(3), torch.tensor([0]), torch.ones(1, 3)
    shows = torch.zeros(1, 3, dtype=torch.bool)
    for call, expected in (
        (
            lambda: modifier_precision(images, queries, texts, shows, r=3),
            "3 images, less the query, give 1 to 2",
        ),
        (
            lambda: modifier_precision(images, queries, texts, shows[:, :2]),
            r"expected \(Q,\), \(Q, d\), \(Q, N\)",
        ),
    ):
        with pytest.raises(ValueError, match=expected):
            call()
