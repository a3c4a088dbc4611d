"""Augmentations: random changes of each training batch."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from bifocal.models.batch import Batch
from bifocal.registry import CheckedByConstruction, check_range
from bifocal.text import TextBatch
from bifocal.training.inputs import TrainingInputs

__all__ = ["RandomRectangle", "RegionDrop", "WordDrop"]

Augment = Callable[[Batch, Generator], Batch]
"""Returns a changed copy of a batch; all random numbers come from the generator, which belongs to
the step."""


class Augmentation(CheckedByConstruction, ABC):
    """Random change of training batches: base class of ``bifocal.training.augmentations``."""

    @abstractmethod
    def prepare(self, inputs: TrainingInputs) -> Augment:
        """Return the function that changes a batch."""


def drop(present: Tensor, probability: float, generator: Generator) -> Tensor:
    """Return ``present`` (B, R) bool without random elements; one element of each row that has some
    is always kept."""
    draws = torch.rand(present.shape, generator=generator).masked_fill(~present, -1)
    last = draws == draws.amax(dim=1, keepdim=True)
    return present & ((draws >= probability) | last)


@dataclass(frozen=True)
class RandomRectangle(Augmentation):
    """Show only the cells in a rectangle of each image's map: of one size in a step, at a place
    drawn for each image.

    A random crop of the image, without computing the layers below the map again. A mirrored image
    beside it gets the same rectangle.

    Args:
        least: least side of the rectangle, as a share of the map's side, in (0, 1).
    """

    least: float = 0.66

    def __post_init__(self) -> None:
        check_range("(0, 1)", least=self.least)

    def prepare(self, inputs: TrainingInputs) -> Augment:
        regions = 0 if inputs.features.pixels else inputs.features.regions
        for views in (1, 2):
            side = math.isqrt(regions // views)
            if side > 1 and views * side**2 == regions:
                return partial(self._augment, views, side)
        raise ValueError(
            f"RandomRectangle needs the cells of a square map, and the features have {regions} "
            "regions: leave it out"
        )

    def _augment(self, views: int, side: int, batch: Batch, generator: Generator) -> Batch:
        mask = batch.regions.mask
        least = math.ceil(self.least * side)
        inside = []
        for _ in range(2):
            length = int(torch.randint(least, side + 1, (), generator=generator))
            start = torch.randint(0, side - length + 1, (len(mask), 1), generator=generator)
            places = torch.arange(side)
            inside.append((places >= start) & (places < start + length))
        rectangle: Tensor = (inside[0][:, :, None] & inside[1][:, None]).flatten(1).repeat(1, views)
        return replace(batch, regions=batch.regions._replace(mask=mask & rectangle.to(mask.device)))


@dataclass(frozen=True)
class RegionDrop(Augmentation):
    """Hide each region of an image with a probability; at least one region remains.

    Chen et al., "Learning the best pooling strategy for visual semantic embedding", CVPR 2021,
    section 3.3, "size augmentation": 20 % of the regions are dropped.

    Args:
        probability: of each region, in (0, 1).
    """

    probability: float = 0.2

    def __post_init__(self) -> None:
        check_range("(0, 1)", probability=self.probability)

    def prepare(self, inputs: TrainingInputs) -> Augment:
        if inputs.features.pixels or inputs.features.regions == 1:
            found = "pixels" if inputs.features.pixels else "one vector per image"
            raise ValueError(
                f"RegionDrop needs several regions per image, and the features are {found}: "
                "leave it out"
            )
        return self._augment

    def _augment(self, batch: Batch, generator: Generator) -> Batch:
        mask = drop(batch.regions.mask, self.probability, generator)
        return replace(batch, regions=batch.regions._replace(mask=mask))


@dataclass(frozen=True)
class WordDrop(Augmentation):
    """Remove each word of a caption with a probability; at least one word remains.

    Iyyer et al., "Deep unordered composition rivals syntactic methods for text classification", ACL
    2015, section 3.2, "word dropout". A dropped token is removed, so the caption gets shorter. A
    dropped term of a bag of words becomes 0, and the others keep the norm of the bag; dense vectors
    beside it (``Concatenated``) do not change.

    Args:
        probability: of each word, in (0, 1).
    """

    probability: float = 0.2

    def __post_init__(self) -> None:
        check_range("(0, 1)", probability=self.probability)

    def prepare(self, inputs: TrainingInputs) -> Augment:
        name = inputs.text.format.name
        if name in ("tokens", "contextual"):
            return partial(_augment, drop_text=partial(drop_tokens, probability=self.probability))
        columns = word_columns(inputs.vectorizer.vectorizer)
        if not columns.any():
            raise ValueError(
                f"WordDrop needs words, and the text has {name} without them: leave it out"
            )
        return partial(
            _augment, drop_text=partial(drop_terms, columns=columns, probability=self.probability)
        )


def drop_tokens(text: TextBatch, generator: Generator, *, probability: float) -> TextBatch:
    """Return captions, (B, T) or (B, L, T, K), without random tokens; T is the new largest
    length."""
    time = text.values.ndim // 2  # the axis of the tokens
    inside = torch.arange(text.values.shape[time]) < text.lengths.unsqueeze(1)
    kept = drop(inside, probability, generator)
    lengths = kept.sum(dim=1)
    order = kept.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[
        :, : int(lengths.max())
    ]
    padding = torch.arange(order.shape[1]) >= lengths.unsqueeze(1)
    if time == 2:
        order, padding = order[:, None, :, None], padding[:, None, :, None]
    return TextBatch(
        torch.take_along_dim(text.values, order, dim=time).masked_fill(padding, 0), lengths
    )


def drop_terms(
    text: TextBatch, generator: Generator, *, columns: Tensor, probability: float
) -> TextBatch:
    """Return bags of words (B, K) without random terms in ``columns`` (K,) bool; each bag keeps its
    norm."""
    row, column = ((text.values != 0) & columns).nonzero(as_tuple=True)
    draws = torch.rand(len(row), generator=generator)
    highest = torch.full((len(text.values),), -1.0).scatter_reduce(0, row, draws, "amax")
    dropped = (draws < probability) & (draws < highest[row])
    values = text.values.clone()
    values[row[dropped], column[dropped]] = 0
    before, after = ((part * columns).norm(dim=1, keepdim=True) for part in (text.values, values))
    return text._replace(
        values=torch.where(columns, values * (before / after.clamp(min=1e-12)), values)
    )


def word_columns(vectorizer: Any) -> Tensor:
    """Return whether each column (K,) of a vectorizer's vectors is a term."""
    vectorizer = getattr(vectorizer, "fitted", vectorizer)
    if parts := getattr(vectorizer, "fitted_parts", ()):
        return torch.cat([word_columns(part) for part in parts])
    return torch.full((vectorizer.format.dim,), vectorizer.format.name == "sparse")


def _augment(batch: Batch, generator: Generator, *, drop_text: Any) -> Batch:
    return replace(batch, text=drop_text(batch.text, generator))
