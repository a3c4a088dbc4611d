"""Extraction: decode ahead, run the network, write the store."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch

from bifocal.datasets import Dataset, open_image
from bifocal.features.base import FeatureExtractor, ImageRegions
from bifocal.features.writer import FeatureWriter
from bifocal.progress import track

T = TypeVar("T")
S = TypeVar("S")


def write_features(records: Iterable[tuple[str, ImageRegions]], writer: FeatureWriter, total: int) -> None:
    """Add ``records`` to the store; ``total`` counts those that are already written too.

    Raises:
        ValueError: a feature or a box is not as it should be; names the image. What was complete before stays.
    """
    with writer:
        for image_id, regions in track(records, "extracting features", total=total, done=len(writer.written)):
            boxes, scores = (None if part is None else part.float().cpu().numpy() for part in regions[1:])
            features = regions.features if writer.dtype == np.uint8 else regions.features.half()
            writer.add(image_id, features.cpu().numpy(), boxes, scores)


class NetworkFeatures:
    """What a network makes of the images of a dataset.

    Images are decoded in threads while the network runs; at most three batches are in memory. On a GPU the network
    runs in mixed precision.

    Args:
        kind: its backbone is on the device where it shall run.
        batch_size: images that the network sees at once.
    """

    def __init__(self, kind: FeatureExtractor, dataset: Dataset, batch_size: int) -> None:
        self.kind, self.dataset, self.batch_size = kind, dataset, batch_size
        self.regions, self.dim = kind.regions, kind.dim

    def describe(self) -> dict[str, Any]:
        """Backbone, layer, preprocessing."""
        return self.kind.describe()

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """The regions of each image, in the order given.

        Raises:
            ValueError: an image cannot be read; names its file.
        """
        start = 0
        for images in self.batches(image_ids):
            device = next(self.kind.backbone.network.parameters()).device
            with torch.inference_mode(), torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
                regions = self.kind.extract(images)
            yield from zip(image_ids[start : start + len(images)], regions, strict=True)
            start += len(images)

    def batches(self, image_ids: Sequence[str]) -> Iterator[list[Any]]:
        """The images as the kind preprocesses them, in the order given."""
        self.kind.backbone.network.to(memory_format=torch.channels_last)
        pixels = prefetch(self._preprocessed, image_ids, ahead=2 * self.batch_size)
        for _ in range(0, len(image_ids), self.batch_size):
            yield list(islice(pixels, self.batch_size))

    def _preprocessed(self, image_id: str) -> Any:
        return self.kind.preprocess(open_image(self.dataset.image_path(image_id)))


def prefetch(function: Callable[[T], S], items: Iterable[T], ahead: int) -> Iterator[S]:
    """``function`` of each item, in order, computed by threads; at most ``ahead`` results wait."""
    waiting: deque[Future[S]] = deque()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
