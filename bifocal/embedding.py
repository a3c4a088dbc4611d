"""Embeddings of a collection."""

import torch
from torch import Tensor

from bifocal.batch import Pairs
from bifocal.features import RegionBatch
from bifocal.models import TwoBranchModel
from bifocal.text import Text

BATCH = 256


def embed(model: TwoBranchModel, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Embeddings of all images (N, d) and captions (M, d), float32 on the CPU; leaves the model in evaluation mode."""
    model.eval()
    device = model.device
    with torch.inference_mode():
        images = [
            model.embed_images(RegionBatch(*(part.to(device) for part in regions)))
            for regions in pairs.image_batches(BATCH)
        ]
        captions = [
            model.embed_captions(Text(*(part.to(device) for part in text))) for text in pairs.caption_batches(BATCH)
        ]
    return torch.cat(images).float().cpu(), torch.cat(captions).float().cpu()
