"""Validation by pointing at phrases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import nn

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.localization import AutoLocalizer
from bifocal.localization.base import Localizer
from bifocal.models.phrase_locator import PhraseLocator, point_at_phrases
from bifocal.text.vectorizers.base import CachedVectorizer, FittedVectorizer
from bifocal.training.inputs import TrainingInputs
from bifocal.training.validators.base import Validation


@dataclass(frozen=True)
class Pointing(Validation):
    """Accuracy of the pointing game on the phrases of "val".

    Akbari et al., CVPR 2019, section 4.1, choose the epoch of a model trained on COCO by the phrases of Flickr30k
    Entities: give ``val`` of the corpus ``Combined`` these images.

    Args:
        phrases: number of phrases, drawn once at random; None for all.
        localizer: part of ``bifocal.localization``; None for the encoder's own.
    """

    monitor: ClassVar[str] = "pointing"
    parts: ClassVar[Mapping[str, str]] = {"localizer": "bifocal.localization"}
    phrases: int | None = None
    localizer: Localizer | AutoLocalizer | None = None

    def __post_init__(self) -> None:
        if self.phrases is not None and self.phrases < 1:
            raise ValueError(f"phrases is {self.phrases}: expected 1 or more, or null for all")

    def prepare(self, inputs: TrainingInputs) -> "PointingValidator":
        dataset = inputs.dataset.split("val")
        if not len(dataset.phrases):
            raise ValueError(
                "the split val has no phrases with boxes to point at: choose another validator, or add phrases"
            )
        features = inputs.features
        if not features.pixels and features.gather(features.rows(dataset.images["image_id"][:1])).boxes.isnan().all():
            raise ValueError("the features have no boxes to point at: choose another validator, or extract a grid")
        drawn = np.random.default_rng(0).permutation(len(dataset.phrases))[: self.phrases]
        vectorizer, localizer = CachedVectorizer(inputs.vectorizer.vectorizer), self.localizer or AutoLocalizer()
        return PointingValidator(dataset, features, vectorizer, localizer, sorted(drawn.tolist()))


@dataclass(frozen=True)
class PointingValidator:
    """Percentage of phrases, ``rows`` of ``dataset``, whose heatmap has its maximum in a ground-truth box."""

    monitor: ClassVar[str] = Pointing.monitor
    dataset: Dataset
    features: FeatureStore
    vectorizer: FittedVectorizer
    localizer: Localizer | AutoLocalizer
    rows: Sequence[int]

    def __call__(self, model: nn.Module) -> dict[str, float]:
        model.eval()
        localizer = self.localizer.for_model(model)
        if localizer is None:
            raise TypeError(f"{type(model.image_encoder).__name__} has no localizer: choose another validator")
        locator = PhraseLocator(model, localizer, self.features, self.vectorizer)
        return {self.monitor: 100 * float(point_at_phrases(locator, self.dataset, self.rows).hits.mean())}
