"""Validation: recall in both directions."""

from typing import Protocol, runtime_checkable

from torch import nn

from bifocal.batch import Pairs
from bifocal.embedding import Embeds, embed
from bifocal.metrics import Ranks, retrieval_ranks, summarize


@runtime_checkable
class RanksPairs(Protocol):
    """A model that has no single vectors to compare, and counts the ranks itself."""

    def retrieval_ranks(self, pairs: Pairs) -> tuple[Ranks, Ranks]:
        """Ranks of caption retrieval and of image retrieval, in evaluation mode."""
        ...


def model_ranks(model: nn.Module, pairs: Pairs) -> tuple[Ranks, Ranks]:
    """Ranks of caption retrieval (one query per image) and of image retrieval (one per caption).

    Raises:
        TypeError: the model neither embeds nor ranks.
    """
    model.eval()
    if isinstance(model, RanksPairs):
        return model.retrieval_ranks(pairs)
    if isinstance(model, Embeds):
        return retrieval_ranks(*embed(model, pairs), pairs.image_of_caption)
    raise TypeError(
        f"{type(model).__name__} cannot be validated: give it embed_images and embed_captions, to unit vectors, "
        "or retrieval_ranks(pairs)"
    )


def validate(model: nn.Module, validation: Pairs) -> dict[str, float]:
    """R@1, R@5, R@10 in percent of both directions, and their sum."""
    report = summarize(model_ranks(model, validation), (1, 5, 10))
    figures = {f"{direction}.R@{k}": values[f"R@{k}"] for direction, values in report.items() for k in (1, 5, 10)}
    return figures | {"recall_sum": sum(figures.values())}
