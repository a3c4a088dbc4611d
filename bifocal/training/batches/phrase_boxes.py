"""Phrases and boxes for structure-preserving embeddings, and fine-tuning on the boxes that fool them.

Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 3.3: two
trainings of one model with ``bifocal.training.fit``, first with ``PhraseSampler(pairs, seed=1)`` and a
``StructurePreservingLoss`` whose structure terms are on, then, for 5 epochs, with
``PhraseSampler(pairs, seed=2, model=model)`` and those terms off. ``pairs`` is a ``PhraseBoxes``. The stage
train_embedding does so under ``phrases``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor, nn

from bifocal.batch import Batch, to_device
from bifocal.datasets import Dataset
from bifocal.embedding import BATCH, DualEncoder, dual_encoder
from bifocal.features import FeatureStore, RegionBatch
from bifocal.metrics.localization.boxes import box_iou
from bifocal.text import Text
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training.batches.captions import shuffle_within_images
from bifocal.training.batches.hard_boxes import hard_negative_boxes


class PhraseBoxes:
    """The different phrases of a dataset and the boxes of its images, for batches of both.

    A phrase's own boxes are, in every image that says it, those of the store's that overlap one of its true boxes most,
    if by the ``overlap`` at which evaluation counts a box as correct: the features are of proposals. Others that
    overlap it so are near it, and no negatives of it.

    Args:
        dataset: of the split, with phrases.
        features: one vector and one box for each region, such as ``Proposals``.
        reader: of the phrases.
        overlap: intersection over union.

    Raises:
        ValueError: no phrase has a box of its own.

    Attributes:
        phrases: the P different ones that have a box of their own.
        own: (n, 2) int64, rows of a phrase and of a box of its own, by phrase.
        correct: rows of a phrase and of a box that is its own or near.
        candidates: of each phrase, the rows of all boxes of the images that say it.
    """

    def __init__(
        self, dataset: Dataset, features: FeatureStore, reader: FittedVectorizer, overlap: float = 0.5
    ) -> None:
        self.features, self.reader = features, reader
        images = dataset.images.set_index("image_id")
        self._image: dict[str, int] = {}
        own: dict[str, set[int]] = {}
        near: dict[str, set[int]] = {}
        said_in: dict[str, set[int]] = {}
        boxes: list[np.ndarray] = []
        for image_id, phrase, truth in dataset.phrases[["image_id", "phrase", "boxes"]].itertuples(index=False):
            if image_id not in self._image:
                self._image[image_id] = len(boxes)
                boxes.append(features.gather(features.rows([image_id])).boxes[0].double().numpy())
            number = self._image[image_id]
            sizes = np.tile(images.loc[image_id, ["width", "height"]].to_numpy(np.float64), 2)
            iou = np.nan_to_num(box_iou(boxes[number], np.asarray(truth, np.float64).reshape(-1, 4) / sizes))
            best = {int(column.argmax()) for column in iou.T if column.max() >= overlap}
            correct = set((iou.max(axis=1) >= overlap).nonzero()[0].tolist())
            for rows, found in ((own, best), (near, correct)):
                rows.setdefault(phrase, set()).update(number * len(iou) + row for row in found)
            said_in.setdefault(phrase, set()).add(number)
        self.phrases = sorted(phrase for phrase, rows in own.items() if rows)
        if not self.phrases:
            raise ValueError(f"none of {len(own)} phrases has a box that overlaps a true one by {overlap}")
        self.regions = len(boxes[0])
        self.own = torch.tensor([[row, box] for row, name in enumerate(self.phrases) for box in sorted(own[name])])
        self._pairs = {(row, box) for row, box in self.own.tolist()}
        self.correct = {(row, box) for row, name in enumerate(self.phrases) for box in near[name]}
        self._store_rows = features.rows(list(self._image))
        present = [self._present(number) for number in range(len(boxes))]
        self.candidates = [torch.cat([present[number] for number in sorted(said_in[name])]) for name in self.phrases]

    def batch(self, rows: Tensor, rank: int = 0, ranks: int = 1) -> Batch:
        """Boxes as images and phrases as captions, of rows (n, 2) of a phrase and a box; a phrase of -1 is none.

        Raises:
            ValueError: several processes are to share it.
        """
        if ranks > 1:
            raise ValueError("phrases and boxes are trained on in one process: start it without torchrun")
        boxes, phrases = rows[:, 1].unique(), rows[:, 0][rows[:, 0] >= 0].unique()
        matches = [[(phrase, box) in self._pairs for phrase in phrases.tolist()] for box in boxes.tolist()]
        names = list(self._image)
        ids = [f"{names[box // self.regions]}, region {box % self.regions}" for box in boxes.tolist()]
        return Batch(ids, self.boxes(boxes), self.texts(phrases), torch.tensor(matches))

    def boxes(self, rows: Tensor) -> RegionBatch:
        """Features of these boxes, each as an image of one region."""
        images, place = (rows // self.regions).unique(return_inverse=True)
        found = self.features.gather(self._store_rows[images.numpy()])
        return RegionBatch(*(part[place, rows % self.regions].unsqueeze(1) for part in found))

    def texts(self, rows: Tensor) -> Text:
        """These phrases."""
        return self.reader.vectorize([self.phrases[row] for row in rows.tolist()])

    @torch.inference_mode()
    def hard_negatives(self, model: DualEncoder, generator: Generator, at_most: int = 50) -> list[Tensor]:
        """Of each phrase the boxes that fool the model as it is, see ``hard_negative_boxes``; none that is near."""
        model.eval()
        found = []
        for row, boxes in enumerate(self.candidates):
            kept = [(row, box) in self._pairs or (row, box) not in self.correct for box in boxes.tolist()]
            candidates = boxes[torch.tensor(kept)]
            phrase = model.embed_captions(to_device(self.texts(torch.tensor([row])), model.device))
            chunks = [to_device(self.boxes(some), model.device) for some in candidates.split(BATCH)]
            vectors = torch.cat([model.embed_images(chunk) for chunk in chunks])
            truth = torch.tensor([[(row, box) in self._pairs for box in candidates.tolist()]])
            (hard,) = hard_negative_boxes(phrase.float().cpu(), vectors.float().cpu(), truth, generator, at_most)
            found.append(candidates[hard])
        return found

    def _present(self, number: int) -> Tensor:
        mask = self.features.gather(self._store_rows[number : number + 1]).mask[0]
        return number * self.regions + mask.nonzero()[:, 0]


@dataclass
class PhraseSampler:
    """Batches of pairs of a phrase and one of its boxes, a pair at most once an epoch.

    Without a model each phrase of a batch gets one more of its boxes, and each box one more of its phrases, for the
    structure within the views. With one, each phrase gets boxes that fool the model as it is when the epoch begins.

    Args:
        pairs: of the training split.
        seed: of all draws.
        batch_size: pairs (1,500 in the paper).
        boxes_each: of a phrase that are drawn in an epoch, at most (10 in the paper).
        model: None, or the one that is fine-tuned.
        at_most: hard negatives that are recorded of a phrase.
        drawn: of these, in a batch (the paper does not say).
    """

    pairs: PhraseBoxes
    seed: int
    batch_size: int = 1500
    boxes_each: int = 10
    model: DualEncoder | None = None
    at_most: int = 50
    drawn: int = 5

    def __call__(self, epoch: int) -> Sequence[Tensor]:
        """The rows of each batch, (n, 2), the phrase of a hard negative being -1."""
        generator = Generator().manual_seed(self.seed * 10_007 + epoch)
        hard = None if self.model is None else self.pairs.hard_negatives(self.model, generator, self.at_most)
        order, place = shuffle_within_images(self.pairs.own[:, 0], generator)
        drawn = order[place < self.boxes_each]
        drawn = drawn[torch.randperm(len(drawn), generator=generator)]
        return [self._more(self.pairs.own[rows], hard, generator) for rows in drawn.split(self.batch_size)]

    def _more(self, rows: Tensor, hard: list[Tensor] | None, generator: Generator) -> Tensor:
        if hard is None:
            own = self.pairs.own[torch.randperm(len(self.pairs.own), generator=generator)]
            own = own[~torch.isin(_codes(own), _codes(rows))]
            return torch.cat(
                [rows, *(_first_of_each(own[torch.isin(own[:, key], rows[:, key])], key) for key in (0, 1))]
            )
        boxes = [
            hard[row][torch.randperm(len(hard[row]), generator=generator)[: self.drawn]] for row in rows[:, 0].unique()
        ]
        negatives = torch.cat(boxes)
        return torch.cat([rows, torch.stack([torch.full_like(negatives, -1), negatives], dim=1)])


@dataclass(frozen=True)
class PhraseValidator:
    """R@1 of the phrases, in percent: is the best of an image's boxes correct?

    Of phrases that have a box of their own: evaluation counts the others as missed.
    """

    pairs: PhraseBoxes
    monitor: str = "phrase_R@1"

    @torch.inference_mode()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        encoder = dual_encoder(model)
        encoder.eval()
        hits = []
        for row, candidates in enumerate(self.pairs.candidates):
            phrase = encoder.embed_captions(to_device(self.pairs.texts(torch.tensor([row])), encoder.device))[0]
            for image in (candidates // self.pairs.regions).unique():
                boxes = candidates[candidates // self.pairs.regions == image]
                scores = encoder.embed_images(to_device(self.pairs.boxes(boxes), encoder.device)) @ phrase
                hits.append((row, int(boxes[int(scores.argmax())])) in self.pairs.correct)
        return {"phrase_R@1": 100 * sum(hits) / len(hits)}


def _codes(rows: Tensor) -> Tensor:
    """One number for each pair."""
    return (rows[:, 0] << 32) + rows[:, 1]


def _first_of_each(rows: Tensor, key: int) -> Tensor:
    """Of rows with the same ``key`` the first."""
    first: dict[int, int] = {}
    for place, value in enumerate(rows[:, key].tolist()):
        first.setdefault(value, place)
    return rows[list(first.values())]
