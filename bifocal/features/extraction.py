"""Extraction: decode images in threads, run the network, write the feature store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bifocal.backbones.folding import folded
from bifocal.datasets import Dataset
from bifocal.datasets.prefetch import prefetch
from bifocal.features.base import BoxExtractor, FeatureExtractor, ImageRegions
from bifocal.features.boxes import CellExtractor, extract_cells, training_boxes
from bifocal.features.extractors.base import TimmExtractor
from bifocal.features.writer import FeatureWriter
from bifocal.progress import track

CPU_BATCH = 4
"""Most images per forward pass on a CPU: maps of more leave its caches, and take up to 1.5 times as
long."""


def write_features(
    records: Iterable[tuple[str, ImageRegions]], writer: FeatureWriter, total: int
) -> None:
    """Add ``records`` to a feature store; ``total`` images are the end of the progress bar."""
    with writer:
        for image_id, regions in track(
            records, "extracting features", total=total, done=len(writer.written)
        ):
            boxes, scores = (
                None if values is None else values.float().cpu().numpy() for values in regions[1:3]
            )
            features = regions.features.half() if writer.dtype == np.float16 else regions.features
            writer.add(image_id, features.cpu().numpy(), boxes, scores, truth=regions.truth)


class NetworkFeatures:
    """Features that an extractor computes from a dataset's images; at most three batches are in
    memory."""

    def __init__(self, extractor: FeatureExtractor, dataset: Dataset, batch_size: int) -> None:
        self.extractor, self.dataset, self.batch_size = extractor, dataset, batch_size
        self.regions, self.dim = extractor.regions, extractor.dim
        self.graph_cells: Callable[[Tensor], tuple[Tensor, Tensor]] | None = (
            None  # in place of the extractor's
        )
        self._truth: dict[str, Tensor] = {}
        if isinstance(extractor, BoxExtractor) and extractor.truth_regions:
            self._truth = training_boxes(dataset, extractor.truth_regions)

    def describe(self) -> dict[str, Any]:
        return self.extractor.describe()

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """Yield the regions of each image, in the order of ``image_ids``."""
        backbone, start = self.extractor.backbone, 0
        network = backbone.network
        device = next(network.parameters()).device
        on_cpu = device.type == "cpu"
        extract = self.extractor.extract
        if self.graph_cells is not None and isinstance(self.extractor, CellExtractor):
            extract = partial(extract_cells, cells=self.graph_cells, crop=self.extractor.crop_side)
        elif on_cpu and isinstance(self.extractor, TimmExtractor):
            backbone.network = folded(network, self.extractor.tapped)
        try:
            for images in self.batches(
                image_ids, min(self.batch_size, CPU_BATCH) if on_cpu else self.batch_size
            ):
                with (
                    torch.inference_mode(),
                    torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"),
                ):
                    regions = extract(images)
                yield from zip(image_ids[start : start + len(images)], regions, strict=True)
                start += len(images)
        finally:
            backbone.network = network

    def batches(self, image_ids: Sequence[str], size: int | None = None) -> Iterator[list[Any]]:
        """Yield batches of preprocessed images, in the order of ``image_ids``."""
        size = size or self.batch_size
        self.extractor.backbone.network.to(memory_format=torch.channels_last)
        images = prefetch(self._preprocess, image_ids, ahead=2 * self.batch_size)
        for _ in range(0, len(image_ids), size):
            yield list(islice(images, size))

    def _preprocess(self, image_id: str) -> Any:
        image = self.dataset.open_image(image_id, self.extractor.decoded_side)
        if isinstance(self.extractor, BoxExtractor):
            return self.extractor.preprocess(image, self._truth.get(image_id))
        return self.extractor.preprocess(image)
