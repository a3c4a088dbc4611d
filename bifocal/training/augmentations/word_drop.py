"""Dropping of words."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from bifocal.models.batch import Batch
from bifocal.text import TextBatch
from bifocal.training.augmentations.base import Augment, Augmentation, check_probability, drop
from bifocal.training.inputs import TrainingInputs


@dataclass(frozen=True)
class WordDrop(Augmentation):
    """Remove each word of a caption with a probability; at least one word remains.

    Iyyer et al., "Deep unordered composition rivals syntactic methods for text classification", ACL 2015, section 3.2,
    "word dropout". A dropped token is removed, so the caption gets shorter. A dropped term of a bag of words becomes 0,
    and the others keep the norm of the bag; dense vectors beside it (``Concatenated``) do not change.

    Args:
        probability: of each word, in (0, 1).
    """

    probability: float = 0.2

    def __post_init__(self) -> None:
        check_probability(self.probability)

    def prepare(self, inputs: TrainingInputs) -> Augment:
        name = inputs.text.format.name
        if name in ("tokens", "contextual"):
            return partial(_augment, drop_text=partial(drop_tokens, probability=self.probability))
        columns = word_columns(inputs.vectorizer.vectorizer)
        if not columns.any():
            raise ValueError(f"WordDrop needs words, and the text has {name} without them: leave it out")
        return partial(_augment, drop_text=partial(drop_terms, columns=columns, probability=self.probability))


def drop_tokens(text: TextBatch, generator: Generator, *, probability: float) -> TextBatch:
    """Return captions, (B, T) or (B, L, T, K), without random tokens; T is the new largest length."""
    time = text.values.ndim // 2  # the axis of the tokens
    inside = torch.arange(text.values.shape[time]) < text.lengths.unsqueeze(1)
    kept = drop(inside, probability, generator)
    lengths = kept.sum(dim=1)
    order = kept.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, : int(lengths.max())]
    padding = torch.arange(order.shape[1]) >= lengths.unsqueeze(1)
    if time == 2:
        order, padding = order[:, None, :, None], padding[:, None, :, None]
    return TextBatch(torch.take_along_dim(text.values, order, dim=time).masked_fill(padding, 0), lengths)


def drop_terms(text: TextBatch, generator: Generator, *, columns: Tensor, probability: float) -> TextBatch:
    """Return bags of words (B, K) without random terms in ``columns`` (K,) bool; each bag keeps its norm."""
    row, column = ((text.values != 0) & columns).nonzero(as_tuple=True)
    draws = torch.rand(len(row), generator=generator)
    highest = torch.full((len(text.values),), -1.0).scatter_reduce(0, row, draws, "amax")
    dropped = (draws < probability) & (draws < highest[row])
    values = text.values.clone()
    values[row[dropped], column[dropped]] = 0
    before, after = ((part * columns).norm(dim=1, keepdim=True) for part in (text.values, values))
    return text._replace(values=torch.where(columns, values * (before / after.clamp(min=1e-12)), values))


def word_columns(vectorizer: Any) -> Tensor:
    """Return whether each column (K,) of a vectorizer's vectors is a term."""
    vectorizer = getattr(vectorizer, "fitted", vectorizer)
    if parts := getattr(vectorizer, "fitted_parts", ()):
        return torch.cat([word_columns(part) for part in parts])
    return torch.full((vectorizer.format.dim,), vectorizer.format.name == "sparse")


def _augment(batch: Batch, generator: Generator, *, drop_text: Any) -> Batch:
    return replace(batch, text=drop_text(batch.text, generator))
