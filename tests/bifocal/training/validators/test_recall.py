"""RecallValidator against the retrieval metrics."""

from collections.abc import Callable

import pytest
from torch import nn

from bifocal.batch import ImageCaptionPairs
from bifocal.embedding import embed
from bifocal.metrics import retrieval_ranks
from bifocal.models import TwoBranchModel
from bifocal.training.validators.recall import RecallValidator


def test_recall_validator_returns_the_recalls_and_their_sum(
    pairs: ImageCaptionPairs, new_model: Callable[[], TwoBranchModel]
) -> None:
    model = new_model().train()
    metrics = RecallValidator(pairs)(model)
    ranks = retrieval_ranks(*embed(model, pairs), pairs.image_of_caption)
    for direction, rank in zip(("caption_retrieval", "image_retrieval"), ranks, strict=True):
        for k in (1, 5, 10):
            assert metrics[f"{direction}.R@{k}"] == pytest.approx(100 * rank.recall(k))
    assert metrics[RecallValidator.monitor] == pytest.approx(
        sum(value for name, value in metrics.items() if "R@" in name)
    )
    assert not model.training


def test_recall_validator_rejects_a_model_that_neither_embeds_nor_ranks(pairs: ImageCaptionPairs) -> None:
    with pytest.raises(TypeError, match="Identity cannot be validated"):
        RecallValidator(pairs)(nn.Identity())
