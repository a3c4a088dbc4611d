"""Phrases with boxes as training pairs, and hard-negative boxes, which the current model mines."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, RegionBatch
from bifocal.features.boxes import image_sizes, relative_boxes
from bifocal.metrics.localization.pointing import box_iou
from bifocal.models.batch import BATCH, Batch, DualEncoder, to_device
from bifocal.onnx.text.captions import EncodedCaptions
from bifocal.text import TextBatch
from bifocal.text.store import collate
from bifocal.text.vectorizers.base import FittedVectorizer

TOLERANCE = 1e-3
"""Maximum difference of the coordinates of a phrase's box and of a stored ground-truth box,
relative to the image."""
IMAGES = 16
"""Images whose boxes are embedded at once."""
MAX_WAITING = 4_000_000
"""Hard boxes, of all phrases, that wait for the next draw: bounds the memory."""


class PhraseBoxPairs:
    """Distinct phrases of a split, the proposals of its images, and the ground-truth boxes that are
    stored with them.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016,
    section 3.3. Phrases that differ only in case are one phrase. A box that overlaps a ground-truth
    box of a phrase by at least ``min_iou`` is never its negative: a batch that holds one counts it
    as a match, as evaluation does.

    A box is a number: S = ``regions`` times the row of its image in ``image_ids``, plus its region
    in the store, proposals first. ``phrase_images`` (n, 2) has rows of each phrase and of each of
    its images, sorted by image; ``positives`` (m, 2) has rows of a phrase and numbers of its
    ground-truth boxes, sorted by phrase.
    """

    def __init__(
        self,
        dataset: Dataset,
        features: FeatureStore,
        vectorizer: FittedVectorizer,
        min_iou: float = 0.5,
    ) -> None:
        if not len(dataset.phrases):
            raise ValueError("the split has no phrases with boxes: choose a corpus with phrases")
        self.features, self.vectorizer = features, vectorizer
        table = dataset.phrases.assign(phrase=dataset.phrases["phrase"].str.lower())
        self.phrases: list[str] = sorted(set(table["phrase"]))
        row_of_phrase = {phrase: row for row, phrase in enumerate(self.phrases)}
        groups = dict(list(table.groupby("image_id", sort=False)[["phrase", "boxes"]]))
        self.image_ids = list(map(str, groups))
        self.regions = features.regions + features.truth_regions
        self._store_rows = features.rows(self.image_ids)
        self._width = self.regions * len(self.image_ids)
        proposals, truth = (
            features.boxes(self._store_rows).numpy(),
            features.truth_boxes(self._store_rows).numpy(),
        )
        sizes = image_sizes(dataset)
        positives, overlapping, phrase_images = [], [], []
        for image, (image_id, rows) in enumerate(zip(self.image_ids, groups.values(), strict=True)):
            if not np.isfinite(proposals[image]).any():
                raise ValueError(
                    f"the features of image {image_id!r} have no boxes: extract features of "
                    "boxes, such as Proposals"
                )
            boxes = [relative_boxes(given, *sizes[image_id]) for given in rows["boxes"]]
            phrase = np.repeat(
                [row_of_phrase[name] for name in rows["phrase"]], [len(given) for given in boxes]
            )
            true = np.concatenate(boxes)
            own = np.concatenate([proposals[image], truth[image]])
            region, column = (np.nan_to_num(box_iou(own, true)) >= min_iou).nonzero()
            overlapping.append(phrase[column] * self._width + image * self.regions + region)
            distance = np.nan_to_num(np.abs(truth[image][:, None] - true).max(axis=2), nan=np.inf)
            slot, column = (
                (distance <= TOLERANCE) & (distance == distance.min(axis=0, initial=np.inf))
            ).nonzero()
            positives.append(
                phrase[column] * self._width + image * self.regions + features.regions + slot
            )
            phrase_images.append(
                np.stack([np.unique(phrase), np.full(len(np.unique(phrase)), image)], axis=1)
            )
        self.phrase_images = torch.from_numpy(np.concatenate(phrase_images))
        self._overlapping = torch.from_numpy(np.unique(np.concatenate(overlapping)))
        codes = torch.from_numpy(np.unique(np.concatenate(positives)))
        self.positives = torch.stack([codes // self._width, codes % self._width], dim=1)

    def resampled(self, boxes_per_phrase: int) -> Tensor:
        """Return the positives (k, 2), with the same random boxes of each phrase in every call."""
        if not len(self.positives):
            raise ValueError(
                "the features hold no ground-truth boxes of the phrases to train on: set "
                "truth_regions of Proposals, or of ImageArrays, and extract the features again"
            )
        keys = torch.rand(len(self.positives), generator=Generator().manual_seed(0))
        return self.positives[
            draw_per_group(self.positives[:, 0], keys, boxes_per_phrase).sort().values
        ]

    def batch(self, rows: Tensor, rank: int = 0, world_size: int = 1) -> Batch:
        """Return boxes as images and phrases as captions, of ``rows`` (n, 2); phrase -1 adds only a
        negative box."""
        if world_size > 1:
            raise ValueError("PhraseBoxes trains in one process: start it without torchrun")
        boxes, phrases = rows[:, 1].unique(), rows[:, 0][rows[:, 0] >= 0].unique()
        ids = [
            f"{self.image_ids[box // self.regions]}, region {box % self.regions}"
            for box in boxes.tolist()
        ]
        return Batch(ids, self.boxes(boxes), self.texts(phrases), self.matches(boxes, phrases))

    def matches(self, boxes: Tensor, phrases: Tensor) -> Tensor:
        """Return whether boxes (B,), ascending, overlap a ground-truth box of phrases (M,): (B, M)
        bool."""
        first, last = (
            torch.searchsorted(self._overlapping, row * self._width)
            for row in (phrases, phrases + 1)
        )
        counts = last - first
        column = torch.arange(len(phrases)).repeat_interleave(counts)
        entry = torch.arange(len(column)) + (first - counts.cumsum(0) + counts)[column]
        overlapping = self._overlapping[entry] - phrases[column] * self._width
        place = torch.searchsorted(boxes, overlapping).clamp(max=len(boxes) - 1)
        found = boxes[place] == overlapping
        matches = torch.zeros(len(boxes), len(phrases), dtype=torch.bool)
        matches[place[found], column[found]] = True
        return matches

    def overlaps(self, phrases: Tensor, boxes: Tensor) -> Tensor:
        """Return whether each of these boxes overlaps a ground-truth box of the phrase beside it;
        shapes broadcast."""
        codes = phrases * self._width + boxes
        place = torch.searchsorted(self._overlapping, codes).clamp(max=len(self._overlapping) - 1)
        return (
            (self._overlapping[place] == codes)
            if len(self._overlapping)
            else torch.zeros_like(codes).bool()
        )

    def boxes(self, rows: Tensor) -> RegionBatch:
        """Return the features of the boxes with these numbers (n,), each as an image with one
        region."""
        return self.features.gather_regions(
            self._store_rows[(rows // self.regions).numpy()], rows % self.regions
        )

    def proposals(self, image: int) -> Tensor:
        """Return the proposal numbers for the image in this row of ``image_ids``."""
        count = int(self.features.counts(self._store_rows[image : image + 1]))
        return image * self.regions + torch.arange(count)

    def texts(self, rows: Tensor) -> TextBatch:
        """Return the text of the phrases of these rows (n,)."""
        encoded, chosen = self._encoded, rows.tolist()
        indices = None if encoded.indices is None else [encoded.indices[row] for row in chosen]
        return collate(
            self.vectorizer.vectorizer.format, [encoded.values[row] for row in chosen], indices
        )

    @cached_property
    def _encoded(self) -> EncodedCaptions:
        # A Fisher vector costs 0.2 GFLOP: encode each phrase once, not once per batch.
        return self.vectorizer.vectorizer.transform(self.phrases)


def draw_per_group(groups: Tensor, keys: Tensor, maximum: int) -> Tensor:
    """Return the rows with each group's ``maximum`` lowest ``keys`` (n,), sorted by group, then by
    key.

    With random keys the draw is uniform, also if it is made in parts that are drawn again together.
    """
    order = keys.argsort(stable=True)
    order = order[groups[order].argsort(stable=True)]
    _, counts = groups[order].unique_consecutive(return_counts=True)
    number = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return order[number < maximum]


class ImageScores(NamedTuple):
    """Scores (p, b) of one image's proposals for its phrases, with phrase rows and box numbers."""

    phrases: Tensor
    boxes: Tensor
    scores: Tensor


@torch.inference_mode()
def hard_negative_boxes(
    model: DualEncoder,
    pairs: PhraseBoxPairs,
    positives: Tensor,
    generator: Generator,
    max_negatives: int = 50,
) -> Tensor:
    """Return proposals that the model scores above one of the ground-truth boxes of a phrase.

    Wang, Li, Lazebnik, CVPR 2016, section 3.3: proposals of the phrase's images that overlap none
    of its ground-truth boxes. ``positives`` (n, 2) are rows of phrases and numbers of their
    ground-truth boxes. Return (k, 2) int64, sorted by phrase, at most ``max_negatives`` of each,
    drawn at random.
    """
    vectors = embed_phrases(model, pairs)
    threshold = torch.full((len(pairs.phrases),), torch.inf)
    for rows in positives[positives[:, 1].argsort(stable=True)].split(BATCH):
        boxes = model.embed_images(to_device(pairs.boxes(rows[:, 1]), model.device)).float()
        scores = (boxes * vectors[rows[:, 0].to(vectors.device)]).sum(dim=1).cpu()
        threshold.scatter_reduce_(0, rows[:, 0], scores, "amin")
    found, keys = [torch.empty(0, 2, dtype=torch.int64)], [torch.empty(0)]
    for image in image_scores(model, pairs, vectors):
        hard = (image.scores > threshold[image.phrases].unsqueeze(1)) & ~pairs.overlaps(
            image.phrases.unsqueeze(1), image.boxes
        )
        phrase, box = hard.nonzero(as_tuple=True)
        found.append(torch.stack([image.phrases[phrase], image.boxes[box]], dim=1))
        keys.append(torch.rand(len(phrase), generator=generator))
        if sum(map(len, keys)) > MAX_WAITING:
            found, keys = _draw(found, keys, max_negatives)
    return _draw(found, keys, max_negatives)[0][0]


def embed_phrases(model: DualEncoder, pairs: PhraseBoxPairs) -> Tensor:
    """Return the embeddings (P, d) of all phrases, float32, on the model's device."""
    model.eval()
    with torch.inference_mode():
        blocks = (
            to_device(pairs.texts(rows), model.device)
            for rows in torch.arange(len(pairs.phrases)).split(BATCH)
        )
        return torch.cat([model.embed_captions(block).float() for block in blocks])


def image_scores(
    model: DualEncoder, pairs: PhraseBoxPairs, vectors: Tensor
) -> Iterator[ImageScores]:
    """Yield the scores of each image with phrases, embedded as ``vectors``; few images are in
    memory at a time."""
    phrases_of_image = pairs.phrase_images[:, 0].split(
        pairs.phrase_images[:, 1].bincount().tolist()
    )
    for block in torch.arange(len(pairs.image_ids)).split(IMAGES):
        boxes = [pairs.proposals(image) for image in block.tolist()]
        regions = to_device(pairs.boxes(torch.cat(boxes)), model.device)
        with torch.inference_mode():
            embeddings = model.embed_images(regions).float().split([len(rows) for rows in boxes])
        for image, rows, embedding in zip(block.tolist(), boxes, embeddings, strict=True):
            phrases = phrases_of_image[image]
            yield ImageScores(
                phrases, rows, (vectors[phrases.to(vectors.device)] @ embedding.T).cpu()
            )


def _draw(
    found: list[Tensor], keys: list[Tensor], maximum: int
) -> tuple[list[Tensor], list[Tensor]]:
    rows, key = torch.cat(found), torch.cat(keys)
    kept = draw_per_group(rows[:, 0], key, maximum)
    return [rows[kept]], [key[kept]]
