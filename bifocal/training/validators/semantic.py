"""Validation by semantic image retrieval."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor, nn

from bifocal.metrics import area_under, choose_queries, semantic_curves
from bifocal.metrics.ranking.semantic_relevance import relevance
from bifocal.models.embedding import dual_encoder
from bifocal.training.inputs import TrainingInputs
from bifocal.training.pairs.semantic import SemanticPairs
from bifocal.training.validators.base import Validation

RS = (8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Semantic(Validation):
    """NDCG of images retrieved by images, ``ndcg``: see ``SemanticValidator``.

    Args:
        images: images of "val" that are ranked, drawn once; None for all.
    """

    monitor: ClassVar[str] = "ndcg"
    images: int | None = None

    def __post_init__(self) -> None:
        if self.images is not None and self.images < 2:
            raise ValueError(f"images is {self.images}, expected at least 2, or null for all")

    def prepare(self, inputs: TrainingInputs) -> "SemanticValidator":
        return SemanticValidator(SemanticPairs(inputs.captions("val")), self.images)


@dataclass(frozen=True)
class SemanticValidator:
    """NDCG of images retrieved by images: the area under NDCG@R for R from 8 to 128, in percent.

    Gordo and Larlus, CVPR 2017, section 6.1: at most 1,000 queries; the relevance of an image is the dot product of the
    tf-idf texts. Texts are not embedded, so a model without texts ("V") is measured too.
    """

    monitor: ClassVar[str] = Semantic.monitor
    pairs: SemanticPairs
    images: int | None = None

    def __call__(self, model: nn.Module) -> dict[str, float]:
        images = self.pairs.embed_images(dual_encoder(model), self._rows)
        rs = [r for r in RS if r < len(images)] or [len(images) - 1]
        curve, _ = semantic_curves(images[self._queries] @ images.T, self._relevance, self._queries, rs)
        return {self.monitor: 100 * area_under(curve)}

    @cached_property
    def _rows(self) -> Tensor:
        return choose_queries(len(self.pairs), seed=0, count=self.images or len(self.pairs))

    @cached_property
    def _queries(self) -> Tensor:
        return choose_queries(len(self._rows), seed=0)

    @cached_property
    def _relevance(self) -> Tensor:
        return relevance(self.pairs.vectors[self._rows.numpy()], self._queries)
