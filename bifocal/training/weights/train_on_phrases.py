"""Weights trained on the phrases and boxes of the dataset."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features.base import FeatureExtractor
from bifocal.registry import check_range
from bifocal.training.pretraining.phrase_words import pretrain_on_phrases
from bifocal.training.weights.base import TrainedWeights


@dataclass(frozen=True)
class TrainOnPhrases(TrainedWeights):
    """Weights trained on the phrases and boxes of the dataset, to predict words; nothing is
    downloaded.

    Each cell of the feature map predicts the words of the phrases whose boxes contain it. The mean
    of all cells predicts the words that occur in captions only. See
    ``bifocal.training.pretraining.phrase_words``.

    Args:
        epochs: passes over the training images.
        batch_size: images per step.
        learning_rate: maximum learning rate of AdamW.
        weight_decay: of AdamW.
        min_count: minimum number of phrases (captions, for image-level words) in which a word must
            occur.
        positive_weight: weight of positive targets relative to negative ones.
        image_word_weight: weight of the image-level word loss relative to the cell-level one.

    Raises:
        ValueError: a number is out of range.
    """

    epochs: int = 16
    batch_size: int = 16
    learning_rate: float = 0.008
    weight_decay: float = 0.05
    min_count: int = 20
    positive_weight: float = 5.0
    image_word_weight: float = 0.02

    def __post_init__(self) -> None:
        check_range(
            "[1, inf)", epochs=self.epochs, batch_size=self.batch_size, min_count=self.min_count
        )
        check_range(
            "[0, inf)", weight_decay=self.weight_decay, image_word_weight=self.image_word_weight
        )
        check_range(
            "(0, inf)", learning_rate=self.learning_rate, positive_weight=self.positive_weight
        )

    @classmethod
    def mismatch(cls, extractor: type, arguments: Mapping[str, Any]) -> str | None:
        if not hasattr(extractor, "grid"):
            return f"TrainOnPhrases trains a feature map, which {extractor.__name__} does not have"
        if not (
            arguments.get("resize") == "square"
            or (arguments.get("resize") is None and arguments.get("size"))
        ):
            return (
                f"TrainOnPhrases needs images of one shape: set resize of {extractor.__name__} "
                "to square"
            )
        return None

    def train(
        self, extractor: FeatureExtractor, dataset: Dataset, checkpoints: Path, seed: int
    ) -> tuple[Mapping[str, Tensor], Mapping[str, float]]:
        if not hasattr(extractor, "grid"):
            raise ValueError(
                f"TrainOnPhrases trains a feature map, which {type(extractor).__name__} does "
                "not have"
            )
        return {}, pretrain_on_phrases(
            extractor.grid(), dataset, checkpoints=checkpoints, seed=seed, **asdict(self)
        )
