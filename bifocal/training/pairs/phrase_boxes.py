"""Phrases of a dataset with the boxes of its images, for phrase localization."""

from collections import defaultdict

import numpy as np
import torch
from torch import Generator, Tensor

from bifocal.batch import Batch, to_device
from bifocal.datasets import Dataset
from bifocal.embedding import BATCH, DualEncoder
from bifocal.features import FeatureStore, RegionBatch
from bifocal.metrics.localization.boxes import box_iou
from bifocal.text import TextBatch
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training.mining.hard_boxes import hard_negative_boxes


class PhraseBoxPairs:
    """Distinct phrases of a dataset and the boxes of its images.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 3.3. The boxes
    are those of the feature store, such as proposals. In each image of a phrase, the box that overlaps a ground-truth
    box most is a positive if their IoU is at least ``min_iou``. Other boxes of that IoU are drawn neither as positives
    nor as hard negatives; a batch that holds one for another phrase counts it as a match, as evaluation does. Phrases
    that differ only in case are one phrase.

    Args:
        dataset: a split with phrases.
        features: one vector and one box per region, such as those of ``Proposals``.
        vectorizer: turns phrases into the input of the text encoder.
        min_iou: intersection over union at which evaluation counts a box as correct.

    Raises:
        ValueError: the features have no boxes, or no phrase has a positive box.

    Attributes:
        phrases: the P distinct phrases with a positive box.
        positives: (n, 2) int64, rows of a phrase and of one of its positive boxes, sorted by phrase.
        overlapping: pairs of rows of a phrase and of a box of at least ``min_iou``, positives included.
        candidates: for each phrase, the rows of all boxes of its images.
    """

    def __init__(
        self, dataset: Dataset, features: FeatureStore, vectorizer: FittedVectorizer, min_iou: float = 0.5
    ) -> None:
        self.features, self.vectorizer = features, vectorizer
        sizes = dataset.images.set_index("image_id")[["width", "height"]]
        self._image_row: dict[str, int] = {}
        positives: dict[str, set[int]] = defaultdict(set)
        overlapping: dict[str, set[int]] = defaultdict(set)
        images_of_phrase: dict[str, set[int]] = defaultdict(set)
        boxes: list[np.ndarray] = []
        for image_id, phrase, truth in dataset.phrases[["image_id", "phrase", "boxes"]].itertuples(index=False):
            phrase = phrase.lower()
            if image_id not in self._image_row:
                self._image_row[image_id] = len(boxes)
                boxes.append(self._boxes_of(image_id))
            image = self._image_row[image_id]
            scale = np.tile(sizes.loc[image_id].to_numpy(np.float64), 2)
            iou = np.nan_to_num(box_iou(boxes[image], np.asarray(truth, np.float64).reshape(-1, 4) / scale))
            best = {int(column.argmax()) for column in iou.T if column.max() >= min_iou}
            correct = (iou.max(axis=1) >= min_iou).nonzero()[0].tolist()
            positives[phrase].update(image * len(iou) + row for row in best)
            overlapping[phrase].update(image * len(iou) + row for row in correct)
            images_of_phrase[phrase].add(image)
        self.phrases = sorted(phrase for phrase, rows in positives.items() if rows)
        if not self.phrases:
            raise ValueError(f"none of {len(positives)} phrases has a box with an IoU of {min_iou} or more")
        self.regions = len(boxes[0])
        self.positives = torch.tensor(
            [[row, box] for row, phrase in enumerate(self.phrases) for box in sorted(positives[phrase])]
        )
        self._positive_pairs = {(row, box) for row, box in self.positives.tolist()}
        self.overlapping = {(row, box) for row, phrase in enumerate(self.phrases) for box in overlapping[phrase]}
        self._store_rows = features.rows(list(self._image_row))
        present = [self._present_boxes(image) for image in range(len(boxes))]
        self.candidates = [
            torch.cat([present[image] for image in sorted(images_of_phrase[phrase])]) for phrase in self.phrases
        ]

    def batch(self, rows: Tensor, rank: int = 0, world_size: int = 1) -> Batch:
        """Return boxes as images and phrases as captions.

        Args:
            rows: (n, 2) rows of a phrase and of a box; phrase -1 adds the box alone, as a negative.

        Raises:
            ValueError: several processes share the batch.
        """
        if world_size > 1:
            raise ValueError("PhraseBoxes trains in one process: start it without torchrun")
        boxes, phrases = rows[:, 1].unique(), rows[:, 0][rows[:, 0] >= 0].unique()
        matches = [[(phrase, box) in self.overlapping for phrase in phrases.tolist()] for box in boxes.tolist()]
        names = list(self._image_row)
        ids = [f"{names[box // self.regions]}, region {box % self.regions}" for box in boxes.tolist()]
        return Batch(ids, self.boxes(boxes), self.texts(phrases), torch.tensor(matches))

    def boxes(self, rows: Tensor) -> RegionBatch:
        """Return the features of these boxes (n,), each as an image of one region."""
        images, image = (rows // self.regions).unique(return_inverse=True)
        regions = self.features.gather(self._store_rows[images.numpy()])
        return RegionBatch(*(part[image, rows % self.regions].unsqueeze(1) for part in regions))

    def texts(self, rows: Tensor) -> TextBatch:
        """Return the text of these phrases (n,)."""
        return self.vectorizer.vectorize([self.phrases[row] for row in rows.tolist()])

    @torch.inference_mode()
    def hard_negatives(self, model: DualEncoder, generator: Generator, max_negatives: int = 50) -> list[Tensor]:
        """Return for each phrase the rows of boxes that the model scores above one of its positives.

        Overlapping boxes are left out; see ``hard_negative_boxes``.
        """
        model.eval()
        negatives = []
        for row, boxes in enumerate(self.candidates):
            pairs = [(row, box) for box in boxes.tolist()]
            eligible = [pair in self._positive_pairs or pair not in self.overlapping for pair in pairs]
            candidates = boxes[torch.tensor(eligible)]
            phrase = model.embed_captions(to_device(self.texts(torch.tensor([row])), model.device))
            chunks = [to_device(self.boxes(chunk), model.device) for chunk in candidates.split(BATCH)]
            vectors = torch.cat([model.embed_images(chunk) for chunk in chunks])
            positive = torch.tensor([[(row, box) in self._positive_pairs for box in candidates.tolist()]])
            (hard,) = hard_negative_boxes(
                phrase.float().cpu(), vectors.float().cpu(), positive, generator, max_negatives
            )
            negatives.append(candidates[hard])
        return negatives

    def _boxes_of(self, image_id: str) -> np.ndarray:
        boxes: np.ndarray = self.features.gather(self.features.rows([image_id])).boxes[0].double().numpy()
        if not np.isfinite(boxes).any():
            raise ValueError(
                f"the features of image {image_id!r} have no boxes: extract features of boxes, such as Proposals"
            )
        return boxes

    def _present_boxes(self, image: int) -> Tensor:
        mask = self.features.gather(self._store_rows[image : image + 1]).mask[0]
        return image * self.regions + mask.nonzero()[:, 0]
