"""Sizes of features, and the memory and operations of their extraction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from bifocal.datasets.published import AUTOMATIC, Download
from bifocal.datasets.resizing import resized_size
from bifocal.features import RegionBatch
from bifocal.features.base import FeatureExtractor, FeatureReader, PublishedFeatures
from bifocal.features.extractors.base import TimmExtractor
from bifocal.features.store import IMAGE_FILES
from bifocal.planning.memory import remembered
from bifocal.planning.simulation import Simulation, Work
from bifocal.registry import build

EXTRACTORS = "bifocal.features.extractors"
NO_WORK = Work()
REGION_BYTES = 20
"""Box and score of a region in the store."""
IMAGE_BYTES = 40
"""Id, offset and number of regions of an image in the store."""


@dataclass(frozen=True)
class ExpectedFeatures:
    """Features of a published corpus, before they are extracted.

    Attributes:
        regions: R, regions of an image in the store.
        dim: D, numbers of a region in the store.
        dtype: type of these numbers.
        pixels: (height, width) of the images in a batch, if the features are pixels.
        image: (height, width) of an image within them.
        decodes: whether every batch decodes image files.
        weights_bytes: file of the backbone's weights, if the features keep it.
        network: whether a network computes them.
        work: of the extraction of an image; None if it is unknown.
        extraction_bytes: memory of a batch in the network and of its weights; None if it is unknown.
        preprocessed_bytes: a decoded and resized image.
        downloads: files to fetch.
    """

    regions: int
    dim: int
    dtype: str = "float16"
    pixels: tuple[int, int] | None = None
    image: tuple[int, int] | None = None
    decodes: bool = False
    weights_bytes: int = 0
    network: bool = False
    work: Work | None = NO_WORK
    extraction_bytes: int | None = 0
    preprocessed_bytes: int = 0
    downloads: tuple[Download, ...] = ()

    @property
    def image_bytes(self) -> int:
        """Bytes of an image in the store."""
        size = np.dtype(self.dtype).itemsize
        return self.regions * (self.dim * size + REGION_BYTES) + IMAGE_BYTES

    @property
    def model_dim(self) -> int:
        """Channels of the model's input."""
        return self.dim if self.pixels is None else 3

    def batch(self, images: int, regions: int | None = None) -> RegionBatch:
        """Return a batch of the shapes that a store gives; call it in a ``Simulation``.

        Args:
            regions: regions of each image; None for all that are stored.
        """
        if self.pixels is not None and self.image is not None:
            mask = torch.zeros(images, *self.pixels, dtype=torch.bool)
            mask[:, : self.image[0], : self.image[1]] = True
            pixels = torch.zeros(1, 3, *self.pixels, dtype=torch.uint8).expand(images, -1, -1, -1)
            return RegionBatch(pixels, mask, torch.zeros(images, 0, 4))
        count = self.regions if regions is None else regions
        features = torch.empty(images, count, self.dim, dtype=torch.float16)
        return RegionBatch(features, torch.ones(images, count, dtype=torch.bool), torch.zeros(images, count, 4))

    def batch_bytes(self, images: int, regions: int | None = None) -> int:
        """Return the bytes of a batch in memory; the arguments are those of ``batch``."""
        if self.pixels is not None:
            return 4 * images * self.pixels[0] * self.pixels[1]  # three channels and the mask
        return images * self.image_bytes * (self.regions if regions is None else regions) // self.regions


@remembered
def expect_features(extractor: Any, batch_size: int | None, image_size: tuple[int, int]) -> ExpectedFeatures | None:
    """Return the features of a published corpus; None if they depend on the user's files.

    Args:
        extractor: reference to a part of ``bifocal.features.extractors``.
        batch_size: images per forward pass; None for published features.
        image_size: usual width and height of the corpus's images, in pixels.
    """
    with torch.device("meta"):
        part: FeatureExtractor | FeatureReader = build(EXTRACTORS, extractor)
    if isinstance(part, FeatureReader):
        shape = part.published() if isinstance(part, PublishedFeatures) else None
        return None if shape is None else ExpectedFeatures(*shape[:2], downloads=shape.downloads)
    simulation = Simulation()
    simulation.materialize(part.backbone.network)
    weights = sum(tensor.numel() * tensor.element_size() for tensor in part.backbone.network.state_dict().values())
    with simulation:
        description = part.describe()
        regions, dim = part.regions, part.dim
    layer, (width, height) = description.get("layer"), image_size
    pixels = image = None
    if layer in ("pixels", IMAGE_FILES):
        preprocessing: Mapping[str, Any] = description["preprocessing"]
        width, height = resized_size(width, height, preprocessing["size"], preprocessing["resize"])
        image = (height, width)
        pixels = (regions, regions) if layer == "pixels" else image
    peak: int | None = None if pixels is None else weights
    work = None if pixels is None else NO_WORK
    if pixels is None and isinstance(part, TimmExtractor):
        peak, work = _extraction(part, batch_size or 1, image_size)
    return ExpectedFeatures(
        regions,
        dim,
        getattr(part, "dtype", "float16"),
        pixels,
        image,
        decodes=layer == IMAGE_FILES,
        weights_bytes=weights if part.keeps_weights else 0,
        network=pixels is None,
        work=work,
        extraction_bytes=peak,
        preprocessed_bytes=3 * width * height,
        downloads=(_library_weights(part, weights),),
    )


def _extraction(extractor: Any, batch_size: int, image_size: tuple[int, int]) -> tuple[int, Work]:
    """Return the memory of a batch, from two smaller batches, and the work of an image."""
    noise = np.random.default_rng(0).integers(0, 256, (*image_size[::-1], 3), np.uint8)
    peaks, sizes = [], (1, 2)
    simulation = Simulation()
    simulation.materialize(extractor.backbone.network)
    image = extractor.preprocess(Image.fromarray(noise))
    for size in sizes:
        simulation.reset_peak()
        with simulation, torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            extractor.extract([image] * size)
        peaks.append(simulation.peak)
    per_image = (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])
    return round(peaks[0] + per_image * (batch_size - sizes[0])), simulation.work.times(1 / sum(sizes))


def _library_weights(extractor: Any, weights: int) -> Download:
    backbone = extractor.backbone
    url = backbone.download_url()
    return Download(f"weights of {backbone.describe()['backbone']}", "timm or torchvision", url, weights, AUTOMATIC)
