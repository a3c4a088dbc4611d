"""Features that are image files: decoded and resized when a batch is read."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features.store import IMAGE_FILES, FeatureStore, RegionBatch
from bifocal.onnx.pixels import DECODED_SCALE, resized_size
from bifocal.processors import usable_decoders


def open_features(directory: Path, dataset: Dataset) -> FeatureStore:
    """Open a feature directory: stored features, or the image files of the dataset (extractor
    ``ImageFiles``).

    Args:
        dataset: the images; it may lie elsewhere than when the features were extracted.

    Raises:
        FileNotFoundError: the directory holds no ``*.arrow`` file.
        ValueError: a file is truncated, or the dataset's images have other sizes than the features.
    """
    store = FeatureStore(directory)
    return (
        ImageFileStore(directory, dataset) if store.metadata.get("layer") == IMAGE_FILES else store
    )


class ImageFileStore(FeatureStore):
    """Pixels of image files behind the interface of the feature store; threads decode one batch
    ahead."""

    def __init__(self, directory: Path, dataset: Dataset) -> None:
        super().__init__(directory)
        self.dim = 3
        self.dataset, self.preprocessing = dataset, self.metadata["preprocessing"]
        self._sizes = np.concatenate([file.features[:, 0] for file in self._files]).astype(np.int64)
        self._check_sizes()
        self._decoders = ThreadPoolExecutor(usable_decoders())
        self._next_batch = ThreadPoolExecutor(1)

    def gather(self, rows: ArrayLike | Tensor) -> RegionBatch:
        """Return the pixels (B, 3, H, W) uint8 of the images in ``rows`` (B,), zero in the padding,
        in that order."""
        index = np.asarray(rows, dtype=np.int64)
        widths, heights = self._sizes[index].T
        width, height = int(widths.max(initial=0)), int(heights.max(initial=0))
        images = np.zeros((len(index), height, width, 3), np.uint8)

        def decode(position: int) -> None:
            pixels = self._read(int(index[position]))
            images[position, : pixels.shape[0], : pixels.shape[1]] = pixels

        list(self._decoders.map(decode, range(len(index))))
        mask = (np.arange(height) < heights[:, None])[:, :, None] & (
            np.arange(width) < widths[:, None]
        )[:, None, :]
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        return RegionBatch(pixels, torch.from_numpy(mask), torch.zeros(len(index), 0, 4))

    def batches(self, rows: NDArray[np.int64], size: int) -> Iterator[RegionBatch]:
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        pending = [self._next_batch.submit(self.gather, part) for part in parts[:1]]
        for number in range(1, len(parts) + 1):
            batch = pending.pop().result()
            pending = [
                self._next_batch.submit(self.gather, part) for part in parts[number : number + 1]
            ]
            yield batch

    def _read(self, row: int) -> NDArray[np.uint8]:
        side = DECODED_SCALE * self.preprocessing["size"]
        image = self.dataset.open_image(self.image_ids[row], side)
        width, height = self._sizes[row].tolist()
        if image.size != (width, height):
            image = image.resize(
                (width, height), Image.Resampling[self.preprocessing["interpolation"].upper()]
            )
        return np.asarray(image)

    def _check_sizes(self) -> None:
        size, resize = self.preprocessing["size"], self.preprocessing["resize"]
        table = self.dataset.images
        for image_id, width, height in zip(
            table["image_id"], table["width"], table["height"], strict=True
        ):
            row = self._row.get(image_id)
            if row is not None and tuple(self._sizes[row]) != resized_size(
                int(width), int(height), size, resize
            ):
                raise ValueError(
                    f"image {image_id!r} has {width} x {height} pixels in the dataset, but the "
                    "features were made from an image of another size: extract the features "
                    "of this dataset"
                )
