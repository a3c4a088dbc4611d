"""Validation by localization of phrases."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from bifocal.models.embedding import dual_encoder
from bifocal.training.inputs import TrainingInputs
from bifocal.training.mining.hard_boxes import embed_phrases, image_scores
from bifocal.training.pairs.phrase_boxes import PhraseBoxPairs
from bifocal.training.validators.base import Validation


@dataclass(frozen=True)
class Phrases(Validation):
    """R@1 of phrases with boxes: see ``PhraseValidator``."""

    monitor: ClassVar[str] = "phrase_R@1"

    def prepare(self, inputs: TrainingInputs) -> "PhraseValidator":
        return PhraseValidator(inputs.phrases("val"))


@dataclass(frozen=True)
class PhraseValidator:
    """R@1 of phrases: how often the best proposal of an image is correct for a phrase; each counts once per image."""

    monitor: ClassVar[str] = Phrases.monitor
    pairs: PhraseBoxPairs

    def __call__(self, model: nn.Module) -> dict[str, float]:
        encoder = dual_encoder(model)
        hits = []
        for image in image_scores(encoder, self.pairs, embed_phrases(encoder, self.pairs)):
            hits.append(self.pairs.overlaps(image.phrases, image.boxes[image.scores.argmax(dim=1)]))
        return {self.monitor: 100 * torch.cat(hits).double().mean().item()}
