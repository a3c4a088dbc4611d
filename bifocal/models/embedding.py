"""Embeddings of a whole collection."""

from collections.abc import Iterable
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from bifocal.features import RegionBatch
from bifocal.models.batch import ImageCaptionPairs, to_device
from bifocal.text import TextBatch

BATCH = 256


class DualEncoder(Protocol):
    """A model with one vector for each image and each caption, such as ``TwoBranchModel``."""

    single_vector: bool

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        ...

    def eval(self) -> object:
        """Switch to evaluation mode."""
        ...

    def embed_images(self, regions: RegionBatch) -> Tensor:
        """Return the embeddings (N, d), of unit norm."""
        ...

    def embed_captions(self, text: TextBatch) -> Tensor:
        """Return the embeddings (M, d), of unit norm."""
        ...


def is_dual_encoder(model: Any) -> bool:
    """Return whether ``model`` has one vector for each image and each caption."""
    return bool(getattr(model, "single_vector", False))


def dual_encoder(model: Any, instead: str = "use a TwoBranchModel") -> DualEncoder:
    """Return ``model`` if it has one vector for each image and each caption; an error says what to do ``instead``."""
    if not is_dual_encoder(model):
        raise TypeError(f"a {type(model).__name__} has no single vector for an image: {instead}")
    return cast(DualEncoder, model)


def embed(model: DualEncoder, pairs: ImageCaptionPairs) -> tuple[Tensor, Tensor]:
    """Return embeddings (N, d) of images and (M, d) of captions, float32 on the CPU; the model stays in eval mode."""
    return embed_images(model, pairs.image_batches(BATCH)), embed_texts(model, pairs.caption_batches(BATCH))


@torch.inference_mode()
def embed_images(model: DualEncoder, batches: Iterable[RegionBatch]) -> Tensor:
    """Return the embeddings of images (N, d), float32 on the CPU; leave the model in evaluation mode."""
    model.eval()
    return torch.cat([model.embed_images(to_device(batch, model.device)).float().cpu() for batch in batches])


@torch.inference_mode()
def embed_texts(model: DualEncoder, batches: Iterable[TextBatch]) -> Tensor:
    """Return the embeddings of texts (M, d), float32 on the CPU; leave the model in evaluation mode."""
    model.eval()
    return torch.cat([model.embed_captions(to_device(batch, model.device)).float().cpu() for batch in batches])
