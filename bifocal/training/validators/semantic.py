"""Validation by semantic image retrieval."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bifocal.embedding import dual_encoder, embed
from bifocal.metrics import area_under, choose_queries, retrieval_ranks, semantic_curves
from bifocal.training.inputs import TrainingInputs
from bifocal.training.pairs.semantic import SemanticPairs
from bifocal.training.validators.base import Validation
from bifocal.training.validators.recall import recall_metrics

RS = (8, 16, 32, 64, 128)


class Semantic(Validation):
    """NDCG of images retrieved by images: see ``SemanticValidator``."""

    monitor: ClassVar[str] = "ndcg"

    def prepare(self, inputs: TrainingInputs) -> "SemanticValidator":
        """Return the validator of the images and texts of "val"."""
        return SemanticValidator(SemanticPairs(inputs.captions("val")))


@dataclass(frozen=True)
class SemanticValidator:
    """NDCG of images retrieved by images, ``ndcg``, with the recalls of captions and images.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6.1: at most 1,000 queries; the
    relevance of an image is the dot product of the tf-idf texts. ``ndcg`` is the area under NDCG@R for R from 8 to 128,
    in percent. It also chooses the epoch of a model that was trained without texts (the paper's "V"), whose recalls
    are at chance level.

    Args:
        pairs: images and texts of the validation split.

    Raises:
        TypeError: when called, the model has no single vector per image.
    """

    monitor: ClassVar[str] = Semantic.monitor
    pairs: SemanticPairs

    def __call__(self, model: nn.Module) -> dict[str, float]:
        images, captions = embed(dual_encoder(model), self.pairs.pairs)
        recalls = recall_metrics(retrieval_ranks(images, captions, self.pairs.pairs.image_of_caption))
        queries, texts = choose_queries(len(images), seed=0), self._texts()
        rs = [r for r in RS if r < len(images)] or [len(images) - 1]
        curve, _ = semantic_curves(images[queries] @ images.T, texts[queries] @ texts.T, queries, rs)
        return recalls | {self.monitor: 100 * area_under(curve)}

    def _texts(self) -> Tensor:
        return self.pairs.texts(torch.arange(len(self.pairs))).values
