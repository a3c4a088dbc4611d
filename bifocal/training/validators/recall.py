"""Validation by retrieval of captions and images."""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from torch import nn

from bifocal.metrics import Ranks, retrieval_ranks, summarize
from bifocal.models.batch import ImageCaptionPairs
from bifocal.models.embedding import dual_encoder, embed, is_dual_encoder
from bifocal.training.inputs import TrainingInputs
from bifocal.training.precision import Precision, embedding_cast
from bifocal.training.validators.base import Validation

KS = (1, 5, 10)


@runtime_checkable
class SelfRanking(Protocol):
    """A model without single vectors, which computes the ranks itself."""

    def retrieval_ranks(self, pairs: ImageCaptionPairs) -> tuple[Ranks, Ranks]:
        """Return the ranks of caption retrieval and of image retrieval, computed in evaluation mode."""
        ...


@dataclass(frozen=True)
class Recall(Validation):
    """R@1, R@5 and R@10 of caption and image retrieval; their sum chooses the epoch.

    Args:
        images: number of images of the split to rank, the first ones, with all their captions; None for all.
    """

    monitor: ClassVar[str] = "recall_sum"
    images: int | None = None

    def __post_init__(self) -> None:
        if self.images is not None and self.images < 2:
            raise ValueError(f"images is {self.images}: expected 2 or more, or null for the whole split")

    def prepare(self, inputs: TrainingInputs) -> "RecallValidator":
        return RecallValidator(inputs.captions("val", self.images), inputs.precision)


@dataclass(frozen=True)
class RecallValidator:
    """R@1, R@5, R@10 of caption and image retrieval, in percent, and their sum ``recall_sum``."""

    monitor: ClassVar[str] = Recall.monitor
    pairs: ImageCaptionPairs
    precision: Precision = "float32"

    def __call__(self, model: nn.Module) -> dict[str, float]:
        return recall_metrics(model_ranks(model, self.pairs, self.precision))


def model_ranks(model: nn.Module, pairs: ImageCaptionPairs, precision: Precision = "float32") -> tuple[Ranks, Ranks]:
    """Return the ranks of caption retrieval (one query per image) and of image retrieval (one query per caption)."""
    model.eval()
    if isinstance(model, SelfRanking):
        return model.retrieval_ranks(pairs)
    if is_dual_encoder(model):
        with embedding_cast(model, precision):
            vectors = embed(dual_encoder(model), pairs)
        return retrieval_ranks(*vectors, pairs.image_of_caption)
    raise TypeError(
        f"{type(model).__name__} cannot be validated: give it embed_images, embed_captions and single_vector = True, "
        "or retrieval_ranks(pairs)"
    )


def recall_metrics(ranks: tuple[Ranks, Ranks]) -> dict[str, float]:
    """Return the metrics of ``RecallValidator`` for the ranks of ``model_ranks``."""
    report = summarize(ranks, KS)
    metrics = {f"{direction}.R@{k}": values[f"R@{k}"] for direction, values in report.items() for k in KS}
    return metrics | {"recall_sum": sum(metrics.values())}
