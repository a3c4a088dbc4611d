"""A batch of images and captions, and the tables and stores it is drawn from."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, RegionBatch
from bifocal.text import TextBatch, TextStore

Modality = TypeVar("Modality", bound=NamedTuple)
"""The images of a batch, or its captions: tensors with one row for each."""


@dataclass(frozen=True)
class Batch:
    """N images and M captions.

    Attributes:
        image_ids: of the N images; for messages, and for whoever wants to look at them.
        regions: features (N, R, D), mask (N, R), boxes (N, R, 4); where several processes share a batch, those of
            this process's images.
        text: values of M captions and their lengths (M,); likewise.
        matches: (N, M) bool, caption m describes image n.
    """

    image_ids: list[str]
    regions: RegionBatch
    text: TextBatch
    matches: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same batch on ``device``."""
        return replace(
            self,
            regions=to_device(self.regions, device),
            text=to_device(self.text, device),
            matches=self.matches.to(device, non_blocking=True),
        )


class BatchSource(Protocol):
    """What training draws its batches from."""

    def batch(self, rows: Tensor, /, rank: int = 0, ranks: int = 1) -> Batch:
        """The batch of the rows that a sampler gave."""
        ...


class ImageCaptionPairs:
    """The captions of a dataset with their images, features and text: what training and evaluation iterate over.

    Args:
        dataset: of the split that is wanted.
        features, text: stores that hold every image and caption of it.

    Raises:
        ValueError: an image or a caption is missing from its store, or an image has no caption.

    Attributes:
        image_ids: of the N images, in the dataset's order.
        image_of_caption: (M,) int64, row in ``image_ids`` of each caption's image.
    """

    def __init__(self, dataset: Dataset, features: FeatureStore, text: TextStore) -> None:
        self.image_ids = [str(image) for image in dataset.images["image_id"]]
        row_of_image = {image: row for row, image in enumerate(self.image_ids)}
        self.image_of_caption = torch.tensor([row_of_image[image] for image in dataset.captions["image_id"]])
        without = len(self.image_ids) - len(self.image_of_caption.unique())
        if without:
            raise ValueError(
                f"{without} of {len(self.image_ids)} images have no caption: give them one, or leave them out"
            )
        self.features, self.text = features, text
        self._feature_rows = features.rows(self.image_ids)
        self._text_rows = text.rows(dataset.captions["caption_id"].to_numpy())

    def __len__(self) -> int:
        """Number of captions."""
        return len(self.image_of_caption)

    def batch(self, captions: Tensor, rank: int = 0, ranks: int = 1) -> Batch:
        """The captions of the given rows (m,) with the images they describe, each once.

        Args:
            rank, ranks: which of how many processes reads it. Each reads its part of the images and of the captions,
                which follow each other in the order of the ranks; what matches is known to all.

        Raises:
            ValueError: there are fewer images than processes.
        """
        images, column = self.image_of_caption[captions].unique(return_inverse=True)
        if len(images) < ranks:
            raise ValueError(f"a batch has {len(images)} images for {ranks} processes: raise batch_size")
        mine, spoken = (rows.tensor_split(ranks)[rank].numpy() for rows in (images, captions))
        return Batch(
            image_ids=[self.image_ids[row] for row in images.tolist()],
            regions=self.features.gather(self._feature_rows[mine]),
            text=self.text.gather(self._text_rows[spoken]),
            matches=torch.arange(len(images)).unsqueeze(1) == column,
        )

    def caption_text(self, captions: Tensor) -> TextBatch:
        """Text of the captions of the given rows (m,)."""
        return self.text.gather(self._text_rows[captions.numpy()])

    def image_batches(self, size: int) -> Iterator[RegionBatch]:
        """Features of all images, in order."""
        return (self.features.gather(rows) for rows in _split(self._feature_rows, size))

    def caption_batches(self, size: int) -> Iterator[TextBatch]:
        """Text of all captions, in order."""
        return (self.text.gather(rows) for rows in _split(self._text_rows, size))


def to_device(half: Modality, device: torch.device) -> Modality:
    """The same images or captions on ``device``."""
    return type(half)(*(part.to(device, non_blocking=True) for part in half))


def _split(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
