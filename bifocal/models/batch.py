"""Batches of images and captions, and the embeddings of a whole collection."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import scipy  # its packages are imported when they are used
import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, RegionBatch
from bifocal.text import TextBatch, TextStore

Modality = TypeVar("Modality", bound=NamedTuple)
"""The images or the captions of a batch: tensors with one row for each."""
CAPTIONS_PER_BLOCK = 65_536
"""Captions that are read together into a sparse matrix."""
BATCH = 256


@dataclass(frozen=True)
class Batch:
    """N images and M captions."""

    image_ids: list[str]  # for messages
    regions: RegionBatch  # features (N, R, D), mask (N, R), boxes (N, R, 4); only of this process
    text: TextBatch  # values of M captions and their lengths (M,); only of this process
    matches: Tensor  # (N, M) bool, true if caption m describes image n; of all processes

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on ``device``."""
        return replace(
            self,
            regions=to_device(self.regions, device),
            text=to_device(self.text, device),
            matches=self.matches.to(device, non_blocking=True),
        )


class BatchSource(Protocol):
    """Source of training batches."""

    def batch(self, rows: Tensor, /, rank: int = 0, world_size: int = 1) -> Batch:
        """Return the batch of the rows that a sampler drew."""
        ...


class ImageCaptionPairs:
    """Captions of a dataset with images, features and text; ``image_of_caption`` (M,) has rows of
    ``image_ids``."""

    def __init__(self, dataset: Dataset, features: FeatureStore, text: TextStore) -> None:
        self.image_ids = [str(image) for image in dataset.images["image_id"]]
        self.image_of_caption = torch.tensor(dataset.image_rows(dataset.captions["image_id"]))
        without = len(self.image_ids) - len(self.image_of_caption.unique())
        if without:
            raise ValueError(
                f"{without} of {len(self.image_ids)} images have no caption: add captions, or "
                "remove the images"
            )
        self.features, self.text = features, text
        self._feature_rows = features.rows(self.image_ids)
        self._text_rows = text.rows(dataset.captions["caption_id"].to_numpy())
        self._negatives: dict[int, list[int]] = {}  # text rows by row of ``image_ids``
        wrong = dataset.corrections[~dataset.corrections["right"].astype(bool)]
        rows = text.rows(wrong["caption_id"].to_numpy(dtype=int))
        for image, row in zip(dataset.image_rows(wrong["image_id"]), rows, strict=True):
            self._negatives.setdefault(int(image), []).append(int(row))

    def __len__(self) -> int:
        return len(self.image_of_caption)

    def batch(self, captions: Tensor, rank: int = 0, world_size: int = 1) -> Batch:
        """Return the captions of the rows (m,) with their images; a rank reads its share and gets
        all matches."""
        images, column = self.image_of_caption[captions].unique(return_inverse=True)
        if len(images) < world_size:
            raise ValueError(
                f"a batch has {len(images)} images for {world_size} processes: raise batch_size"
            )
        matches = torch.arange(len(images)).unsqueeze(1) == column
        text_rows = torch.from_numpy(self._text_rows[captions.numpy()])
        wrong = [row for image in images.tolist() for row in self._negatives.get(image, ())]
        if wrong:  # columns without a match: hard negatives of the images
            text_rows = torch.cat([text_rows, torch.tensor(wrong)])
            matches = torch.cat([matches, matches.new_zeros(len(images), len(wrong))], dim=1)
        own_images, own_text = (
            rows.tensor_split(world_size)[rank].numpy() for rows in (images, text_rows)
        )
        return Batch(
            image_ids=[self.image_ids[row] for row in images.tolist()],
            regions=self.features.gather(self._feature_rows[own_images]),
            text=self.text.gather(own_text),
            matches=matches,
        )

    def caption_text(self, captions: Tensor) -> TextBatch:
        """Return the text of the captions of the given rows (m,)."""
        return self.text.gather(self._text_rows[captions.numpy()])

    def caption_matrix(self) -> "scipy.sparse.csr_matrix":
        """Return the text of all captions, in order, as a sparse matrix (M, K)."""
        rows = self._text_rows
        starts = range(0, len(rows), CAPTIONS_PER_BLOCK)
        blocks = [
            self.text.gather_sparse(rows[start : start + CAPTIONS_PER_BLOCK]) for start in starts
        ]
        return scipy.sparse.csr_matrix(scipy.sparse.vstack(blocks))

    def image_batches(self, size: int) -> Iterator[RegionBatch]:
        """Yield the features of all images, in order."""
        return self.features.batches(self._feature_rows, size)

    def caption_batches(self, size: int) -> Iterator[TextBatch]:
        """Yield the text of all captions, in order."""
        rows = self._text_rows
        return (self.text.gather(rows[start : start + size]) for start in range(0, len(rows), size))


def to_device(modality: Modality, device: torch.device) -> Modality:
    """Return the images or captions on ``device``."""
    return type(modality)(*(tensor.to(device, non_blocking=True) for tensor in modality))


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
    """Return ``model`` if it has one vector for each image and each caption; an error says what to
    do ``instead``."""
    if not is_dual_encoder(model):
        raise TypeError(f"a {type(model).__name__} has no single vector for an image: {instead}")
    return cast(DualEncoder, model)


def embed(model: DualEncoder, pairs: ImageCaptionPairs) -> tuple[Tensor, Tensor]:
    """Return embeddings (N, d) of images and (M, d) of captions, float32 on the CPU; the model
    stays in eval mode."""
    return embed_images(model, pairs.image_batches(BATCH)), embed_texts(
        model, pairs.caption_batches(BATCH)
    )


@torch.inference_mode()
def embed_images(model: DualEncoder, batches: Iterable[RegionBatch]) -> Tensor:
    """Return the embeddings of images (N, d), float32 on the CPU; leave the model in evaluation
    mode."""
    return _embed(model, model.embed_images, batches)


@torch.inference_mode()
def embed_texts(model: DualEncoder, batches: Iterable[TextBatch]) -> Tensor:
    """Return the embeddings of texts (M, d), float32 on the CPU; leave the model in evaluation
    mode."""
    return _embed(model, model.embed_captions, batches)


def _embed(
    model: DualEncoder, encode: Callable[[Modality], Tensor], batches: Iterable[Modality]
) -> Tensor:
    model.eval()
    return torch.cat([encode(to_device(batch, model.device)).float().cpu() for batch in batches])
