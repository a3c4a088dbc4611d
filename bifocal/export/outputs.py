"""Outputs of exported graphs for many images and sentences of a dataset."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.onnx.encoders import Array, Encoders


def encode_images(
    encoders: Encoders, dataset: Dataset, image_ids: Sequence[str], features: FeatureStore | None
) -> Array:
    """Encode images from their files if the graphs read files, else from their stored features."""
    if "image" in encoders.inputs:
        return encoders.encode_images([dataset.read(image_id) for image_id in image_ids])
    if features is None or "features" not in encoders.inputs:
        raise ValueError(
            f"the graphs take {', '.join(encoders.inputs)}: images need the features they read"
        )
    return encoders.encode_inputs(features.unpadded(image_ids))


def in_batches(
    encode: Callable[[Sequence[str]], Array], inputs: Sequence[str], size: int
) -> Tensor:
    """Return the outputs of ``encode`` for successive parts of ``inputs``."""
    parts = [encode(inputs[start : start + size]) for start in range(0, len(inputs), size)]
    return torch.from_numpy(np.concatenate(parts))
