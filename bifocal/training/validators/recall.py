"""Validation by recall of captions and images."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

from bifocal.batch import ImageCaptionPairs
from bifocal.embedding import dual_encoder, embed, is_dual_encoder
from bifocal.metrics import Ranks, retrieval_ranks, summarize


@runtime_checkable
class SelfRanking(Protocol):
    """A model that has no single vectors to compare, and counts the ranks itself."""

    def retrieval_ranks(self, pairs: ImageCaptionPairs) -> tuple[Ranks, Ranks]:
        """Ranks of caption retrieval and of image retrieval, in evaluation mode."""
        ...


@dataclass(frozen=True)
class RecallValidator:
    """R@1, R@5, R@10 of both directions, and their sum ``recall_sum``, which chooses the epoch."""

    pairs: ImageCaptionPairs
    monitor: str = "recall_sum"

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """See ``validate``."""
        return validate(model, self.pairs)


def model_ranks(model: nn.Module, pairs: ImageCaptionPairs) -> tuple[Ranks, Ranks]:
    """Ranks of caption retrieval (one query per image) and of image retrieval (one per caption).

    Raises:
        TypeError: the model neither embeds nor ranks.
    """
    model.eval()
    if isinstance(model, SelfRanking):
        return model.retrieval_ranks(pairs)
    if is_dual_encoder(model):
        return retrieval_ranks(*embed(dual_encoder(model), pairs), pairs.image_of_caption)
    raise TypeError(
        f"{type(model).__name__} cannot be validated: give it embed_images, embed_captions and single_vector = True, "
        "or retrieval_ranks(pairs)"
    )


def validate(model: nn.Module, validation: ImageCaptionPairs) -> dict[str, float]:
    """R@1, R@5, R@10 in percent of both directions, and their sum."""
    return recalls(model_ranks(model, validation))


def recalls(ranks: tuple[Ranks, Ranks]) -> dict[str, float]:
    """The figures of ``validate``, of what ``model_ranks`` found."""
    report = summarize(ranks, (1, 5, 10))
    figures = {f"{direction}.R@{k}": values[f"R@{k}"] for direction, values in report.items() for k in (1, 5, 10)}
    return figures | {"recall_sum": sum(figures.values())}
