"""PCA whitening of the regions of R-MAC."""

from collections.abc import Iterator

import torch
from torch import Tensor

from bifocal.backbones.whitening import learn_whitening
from bifocal.draws import drawn
from bifocal.image_encoders import RMACEncoder
from bifocal.models.base import Model
from bifocal.models.batch import to_device
from bifocal.registry import check_range
from bifocal.training.initialization.base import Initialization
from bifocal.training.inputs import TrainingInputs

BATCH = 64


class PCAWhitening(Initialization):
    """PCA whitening as the last layer of R-MAC, learned from the regions of training images.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, sections 3 and 5.1: the
    network starts as the R-MAC of its pretrained backbone. Without phases it is the visual baseline
    of tables 1 and 2. The text encoder keeps its random weights.

    Args:
        images: training images to learn from, at most; they are drawn at random.

    Example:
        >>> PCAWhitening(images=2000).images
        2000
    """

    def __init__(self, images: int = 5000) -> None:
        check_range("[1, inf)", images=images)
        self.images = images

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        """Set the layer ``whitening`` of the image encoder."""
        encoder = model.image_encoder
        if not isinstance(encoder, RMACEncoder):
            raise ValueError(f"PCAWhitening needs an RMACEncoder, not {type(encoder).__name__}")
        names = list(inputs.dataset.split("train").images["image_id"])
        rows = inputs.features.rows(drawn(names, self.images, seed))
        vectors = 0

        @torch.inference_mode()
        def regions() -> Iterator[Tensor]:
            nonlocal vectors
            for batch in inputs.features.batches(rows, BATCH):
                pixels, mask, _ = to_device(batch, model.device)
                found = encoder.region_vectors(pixels.to(model.dtype), mask)
                vectors += len(found)
                yield found

        model.eval()
        encoder.set_whitening(learn_whitening(regions(), encoder.dim))
        return {"whitening_images": len(rows), "whitening_regions": vectors}
