"""Validation by localization of phrases."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from bifocal.batch import to_device
from bifocal.embedding import dual_encoder
from bifocal.training.inputs import TrainingInputs
from bifocal.training.pairs.phrase_boxes import PhraseBoxPairs
from bifocal.training.validators.base import Validation


class Phrases(Validation):
    """R@1 of phrases with boxes: see ``PhraseValidator``."""

    monitor: ClassVar[str] = "phrase_R@1"

    def prepare(self, inputs: TrainingInputs) -> "PhraseValidator":
        """Return the validator of the phrases of "val"."""
        return PhraseValidator(inputs.phrases("val"))


@dataclass(frozen=True)
class PhraseValidator:
    """R@1 of phrases, ``phrase_R@1``: how often the best box of an image is correct for a phrase.

    Only phrases with a positive box count; evaluation counts the others as misses.

    Args:
        pairs: phrases and boxes of the validation split.

    Raises:
        TypeError: when called, the model has no single vector per box.
    """

    monitor: ClassVar[str] = Phrases.monitor
    pairs: PhraseBoxPairs

    @torch.inference_mode()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        encoder = dual_encoder(model)
        encoder.eval()
        hits = []
        for row, candidates in enumerate(self.pairs.candidates):
            phrase = encoder.embed_captions(to_device(self.pairs.texts(torch.tensor([row])), encoder.device))[0]
            image_of_box = candidates // self.pairs.regions
            for image in image_of_box.unique():
                boxes = candidates[image_of_box == image]
                scores = encoder.embed_images(to_device(self.pairs.boxes(boxes), encoder.device)) @ phrase
                hits.append((row, int(boxes[int(scores.argmax())])) in self.pairs.overlapping)
        return {self.monitor: 100 * sum(hits) / len(hits)}
