"""Embeddings of a collection."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from bifocal.batch import ImageCaptionPairs, to_device
from bifocal.features import RegionBatch
from bifocal.text import Text

BATCH = 256


@runtime_checkable
class DualEncoder(Protocol):
    """A model of one vector for each image and each caption."""

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        ...

    def eval(self) -> object:
        """Evaluation mode."""
        ...

    def embed_images(self, regions: RegionBatch) -> Tensor:
        """(N, d), of unit norm."""
        ...

    def embed_captions(self, text: Text) -> Tensor:
        """(M, d), of unit norm."""
        ...


def embed(model: DualEncoder, pairs: ImageCaptionPairs) -> tuple[Tensor, Tensor]:
    """Embeddings of all images (N, d) and captions (M, d), float32 on the CPU; leaves the model in evaluation mode."""
    model.eval()
    device = model.device
    with torch.inference_mode():
        images = [model.embed_images(to_device(regions, device)) for regions in pairs.image_batches(BATCH)]
        captions = [model.embed_captions(to_device(text, device)) for text in pairs.caption_batches(BATCH)]
    return torch.cat(images).float().cpu(), torch.cat(captions).float().cpu()
