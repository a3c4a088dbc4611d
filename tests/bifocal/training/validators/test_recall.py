"""RecallValidator against the retrieval metrics."""

from collections.abc import Callable

import pytest
from torch import nn

from bifocal.metrics import retrieval_ranks
from bifocal.models import TwoBranchModel
from bifocal.models.batch import ImageCaptionPairs
from bifocal.models.embedding import embed
from bifocal.training.inputs import TrainingInputs
from bifocal.training.validators.recall import Recall, RecallValidator


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


def test_recall_ranks_the_first_images_of_the_split(
    inputs: TrainingInputs, new_model: Callable[[], TwoBranchModel]
) -> None:
    validation, model = inputs.captions("val"), new_model()
    images, captions = embed(model, validation)
    first = validation.image_of_caption < 3
    ranks = retrieval_ranks(images[:3], captions[first], validation.image_of_caption[first])
    metrics = Recall(images=3).prepare(inputs)(model)
    assert metrics["caption_retrieval.R@1"] == pytest.approx(100 * ranks[0].recall(1))
    assert metrics["image_retrieval.R@1"] == pytest.approx(100 * ranks[1].recall(1))
    assert inputs.captions("val", 3).image_ids == validation.image_ids[:3]
    assert Recall().prepare(inputs)(model) == RecallValidator(validation)(model)
