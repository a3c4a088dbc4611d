"""Validators: the metric on the split "val" that chooses the epoch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from bifocal.draws import drawn_rows
from bifocal.localization import AutoLocalizer
from bifocal.localization.base import Localizer
from bifocal.metrics import (
    Ranks,
    area_under,
    choose_queries,
    retrieval_ranks,
    semantic_curves,
    summarize,
)
from bifocal.metrics.ranking.semantic_relevance import relevance
from bifocal.models.batch import ImageCaptionPairs, dual_encoder, embed, is_dual_encoder
from bifocal.models.phrase_locator import PhraseLocator, point_at_phrases
from bifocal.registry import CheckedByConstruction, check_range
from bifocal.text.vectorizers.base import CachedVectorizer
from bifocal.training.inputs import TrainingInputs
from bifocal.training.phrase_pairs import PhraseBoxPairs, embed_phrases, image_scores
from bifocal.training.precision import Precision, embedding_cast
from bifocal.training.semantic_pairs import SemanticPairs

__all__ = ["Phrases", "Pointing", "Recall", "Semantic"]
KS = (1, 5, 10)
RS = (8, 16, 32, 64, 128)
Validate = Callable[[nn.Module], dict[str, float]]
"""Returns the metrics of a model, in percent, on the validation split; leaves the model in
evaluation mode."""


class Validation(CheckedByConstruction, ABC):
    """Choice of the validation metric, ``monitor``, whose highest value is best.

    Base class of ``bifocal.training.validators``.
    """

    monitor: ClassVar[str]

    @abstractmethod
    def prepare(self, inputs: TrainingInputs) -> Validate:
        """Return the function that validates a model on the split "val"."""


@runtime_checkable
class SelfRanking(Protocol):
    """A model without single vectors, which computes the ranks itself."""

    def retrieval_ranks(self, pairs: ImageCaptionPairs) -> tuple[Ranks, Ranks]:
        """Return the ranks of caption retrieval and of image retrieval, computed in evaluation
        mode."""
        ...


@dataclass(frozen=True)
class Recall(Validation):
    """R@1, R@5 and R@10 of caption and image retrieval; their sum chooses the epoch.

    Args:
        images: number of images of the split to rank, the first ones, with all their captions; None
            for all.
    """

    monitor: ClassVar[str] = "recall_sum"
    images: int | None = None

    def __post_init__(self) -> None:
        check_range("[2, inf)", images=self.images)

    def prepare(self, inputs: TrainingInputs) -> Validate:
        pairs = inputs.captions("val", self.images)
        return lambda model: recall_metrics(model_ranks(model, pairs, inputs.precision))


def model_ranks(
    model: nn.Module, pairs: ImageCaptionPairs, precision: Precision = "float32"
) -> tuple[Ranks, Ranks]:
    """Return the ranks of caption retrieval (one query per image) and of image retrieval (one query
    per caption)."""
    model.eval()
    if isinstance(model, SelfRanking):
        return model.retrieval_ranks(pairs)
    if is_dual_encoder(model):
        with embedding_cast(model, precision):
            vectors = embed(dual_encoder(model), pairs)
        return retrieval_ranks(*vectors, pairs.image_of_caption)
    raise TypeError(
        f"{type(model).__name__} cannot be validated: give it embed_images, embed_captions and "
        "single_vector = True, or retrieval_ranks(pairs)"
    )


def recall_metrics(ranks: tuple[Ranks, Ranks]) -> dict[str, float]:
    """Return R@1, R@5, R@10 of both directions, in percent, and their sum, for the ranks of
    ``model_ranks``."""
    report = summarize(ranks, KS)
    metrics = {
        f"{direction}.R@{k}": values[f"R@{k}"] for direction, values in report.items() for k in KS
    }
    return metrics | {"recall_sum": sum(metrics.values())}


@dataclass(frozen=True)
class Phrases(Validation):
    """R@1 of phrases: how often the best proposal of an image is correct for a phrase; each counts
    once per image."""

    monitor: ClassVar[str] = "phrase_R@1"

    def prepare(self, inputs: TrainingInputs) -> Validate:
        return partial(phrase_recall, inputs.phrases("val"))


def phrase_recall(pairs: PhraseBoxPairs, model: nn.Module) -> dict[str, float]:
    """Return the metric of ``Phrases``."""
    encoder = dual_encoder(model)
    hits = [
        pairs.overlaps(image.phrases, image.boxes[image.scores.argmax(dim=1)])
        for image in image_scores(encoder, pairs, embed_phrases(encoder, pairs))
    ]
    return {Phrases.monitor: 100 * torch.cat(hits).double().mean().item()}


@dataclass(frozen=True)
class Pointing(Validation):
    """Accuracy of the pointing game on the phrases of "val".

    Akbari et al., CVPR 2019, section 4.1, choose the epoch of a model trained on COCO by the
    phrases of Flickr30k
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
        check_range("[1, inf)", phrases=self.phrases)

    def prepare(self, inputs: TrainingInputs) -> Validate:
        dataset = inputs.dataset.split("val")
        if not len(dataset.phrases):
            raise ValueError(
                "the split val has no phrases with boxes to point at: choose another "
                "validator, or add phrases"
            )
        features = inputs.features
        if not features.has_boxes:
            raise ValueError(
                "the features have no boxes to point at: choose another validator, or extract "
                "a grid"
            )
        vectorizer, localizer = (
            CachedVectorizer(inputs.vectorizer.vectorizer),
            self.localizer or AutoLocalizer(),
        )
        names = dataset.phrases["image_id"] + " " + dataset.phrases["phrase"]
        rows = drawn_rows(names, self.phrases or len(names), 0)

        def validate(model: nn.Module) -> dict[str, float]:
            own = localizer.for_model(model.eval())
            if own is None:
                raise TypeError(
                    f"{type(model.image_encoder).__name__} has no localizer: choose another "
                    "validator"
                )
            hits = point_at_phrases(
                PhraseLocator(model, own, features, vectorizer), dataset, rows
            ).hits
            return {self.monitor: 100 * float(hits.mean())}

        return validate


@dataclass(frozen=True)
class Semantic(Validation):
    """NDCG of images retrieved by images, ``ndcg``: the area under NDCG@R for R from 8 to 128, in
    percent.

    Gordo and Larlus, CVPR 2017, section 6.1: at most 1,000 queries; the relevance of an image is
    the dot product of the tf-idf texts. Texts are not embedded, so a model without texts ("V") is
    measured too.

    Args:
        images: images of "val" that are ranked, drawn once; None for all.
    """

    monitor: ClassVar[str] = "ndcg"
    images: int | None = None

    def __post_init__(self) -> None:
        check_range("[2, inf)", images=self.images)

    def prepare(self, inputs: TrainingInputs) -> Validate:
        return self.of_pairs(SemanticPairs(inputs.captions("val")))

    def of_pairs(self, pairs: SemanticPairs) -> Validate:
        """Return the function that validates a model on ``pairs``."""
        rows = choose_queries(len(pairs), seed=0, count=self.images or len(pairs))
        queries, rs = (
            choose_queries(len(rows), seed=0),
            [r for r in RS if r < len(rows)] or [len(rows) - 1],
        )
        relevant = relevance(pairs.vectors[rows.numpy()], queries)

        def validate(model: nn.Module) -> dict[str, float]:
            images = pairs.embed_images(dual_encoder(model), rows)
            curve, _ = semantic_curves(images[queries] @ images.T, relevant, queries, rs)
            return {self.monitor: 100 * area_under(curve)}

        return validate
