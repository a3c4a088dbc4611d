"""Train a backbone on the phrases and boxes of a dataset, without downloaded weights.

Each cell of the feature map predicts the words of the phrases whose boxes contain it, and whether
any box does, as for bottom-up features (Anderson et al., CVPR 2018). Words that occur only in
captions are predicted for the whole image.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bifocal.datasets import Dataset
from bifocal.datasets.prefetch import prefetch
from bifocal.features.extractors.grid import Grid
from bifocal.metrics import mean_average_precision
from bifocal.training.checkpoints import RunState
from bifocal.training.loop import TrainingTask, run_epochs
from bifocal.training.precision import autocast_for
from bifocal.training.pretraining.word_targets import (
    TargetVocabulary,
    WordTargets,
    build_target_vocabulary,
)
from bifocal.training.schedules import Cosine

VALIDATION_IMAGES, EVALUATED_AT_ONCE = 250, 32
WARMUP = 0.15
MAX_SHIFT, MAX_DECODED_BYTES = 1 / 16, 1e9


class WordHeads(nn.Module):
    """Word logits for each cell and for the whole image, from a feature map (B, C, h, w)."""

    def __init__(self, channels: int, cell_words: int, scene_words: int) -> None:
        super().__init__()
        self.cell = nn.Linear(channels, cell_words)
        self.scene = nn.Linear(channels, scene_words) if scene_words else None
        # Start from low probabilities: most words are absent from most cells.
        nn.init.constant_(self.cell.bias, -4.0)
        if self.scene is not None:
            nn.init.constant_(self.scene.bias, -2.0)

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, h, w, cell words) and (B, scene words)."""
        means = maps.mean(dim=(2, 3))
        return self.cell(maps.permute(0, 2, 3, 1)), means[
            :, :0
        ] if self.scene is None else self.scene(means)


def pretrain_on_phrases(
    extractor: Grid,
    dataset: Dataset,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    min_count: int,
    positive_weight: float,
    image_word_weight: float,
    checkpoints: Path,
    seed: int,
) -> dict[str, float]:
    """Train the backbone of ``extractor`` in place on the split "train", and return metrics of the
    split "val".

    The network multiplies in bfloat16 where the device has instructions for it.

    A word is a target if it occurs in at least ``min_count`` phrases (captions, for words of the
    whole image). The metrics are mean average precision, in [0, 1], with chance levels
    ``..._chance``: ``word_ap`` over the cells, ``object_ap`` of lying in any box, ``scene_word_ap``
    over the images.
    """
    if extractor.backbone.resize != "square":
        raise ValueError("pretraining needs images of one shape: set resize to 'square'")
    train, validation = dataset.split("train"), dataset.split("val")
    words = build_target_vocabulary(train, min_count)
    image_ids = [str(image_id) for image_id in train.images["image_id"]]
    torch.manual_seed(seed)
    network = extractor.backbone.network.requires_grad_(True).to(memory_format=torch.channels_last)
    heads = WordHeads(extractor.map_shape[0], len(words.cell) + 1, len(words.scene)).to(
        extractor.backbone.device
    )
    modules = nn.ModuleDict({"network": network, "heads": heads})
    optimizer = torch.optim.AdamW(modules.parameters(), lr=learning_rate, weight_decay=weight_decay)
    targets = WordTargets(train, words, image_ids)
    weights = positive_weight, image_word_weight
    task = _PhraseWordsTask(extractor, heads, train, targets, image_ids, batch_size, *weights, seed)
    state = RunState(checkpoints, dict(modules.items()), optimizer)
    run_epochs(
        task, state, epochs=epochs, learning_rate=learning_rate, schedule=Cosine(warmup=WARMUP)
    )
    network.eval().requires_grad_(False)
    return _evaluate(extractor, heads, validation, words)


class Examples(NamedTuple):
    """A batch: pixels (B, 3, H, W) uint8, cell targets (B, h, w, V + 1), targets of the whole image
    (B, S)."""

    pixels: Tensor
    cells: Tensor
    scene: Tensor


@dataclass
class _PhraseWordsTask(TrainingTask[Examples]):
    extractor: Grid
    heads: WordHeads
    dataset: Dataset
    targets: WordTargets
    image_ids: Sequence[str]
    batch_size: int
    positive_weight: float
    image_word_weight: float
    seed: int
    decoded: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    name = "backbone"

    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterator[Examples]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.image_ids)).tolist()
        return -(-len(order) // self.batch_size), self._read(
            epoch, order[first_step * self.batch_size :]
        )

    def start_epoch(self, epoch: int) -> None:
        self.extractor.backbone.network.train()

    def backward(self, batch: Examples, epoch: int, step: int) -> Tensor:
        device = self.extractor.backbone.device
        pixels, cells, scene = (tensor.to(device) for tensor in batch)
        with autocast_for(device.type, "bfloat16")():
            maps = self.extractor.feature_map(pixels)
        cell_logits, scene_logits = self.heads(maps.float())
        weight = torch.tensor(self.positive_weight, device=device)
        loss = binary_cross_entropy_with_logits(
            cell_logits, cells, reduction="sum", pos_weight=weight
        )
        loss = loss / (cells.shape[1] * cells.shape[2])
        if scene.shape[1]:
            scene_loss = binary_cross_entropy_with_logits(scene_logits, scene, reduction="sum")
            loss = loss + self.image_word_weight * scene_loss
        loss = loss / len(pixels)
        loss.backward()
        return loss.detach()

    def size(self, batch: Examples) -> int:
        return len(batch.pixels)

    def _read(self, epoch: int, rows: Sequence[int]) -> Iterator[Examples]:
        """Yield images that are mirrored, since "left" and "right" are not targets, and shifted at
        random."""
        _, height, width = self.extractor.map_shape

        def example(row: int) -> tuple[NDArray[Any], ...]:
            image_id, random = self.image_ids[row], np.random.default_rng([self.seed, epoch, row])
            pixels, boxes = self._pixels(image_id), self.targets.boxes[image_id]
            if random.random() < 0.5:
                pixels, boxes = (
                    pixels[:, :, ::-1],
                    boxes[:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [1, 0, 1, 0],
                )
            pixels, shift = _shifted(pixels, random)
            cells = self.targets.of_cells(image_id, boxes + np.tile(shift, 2), height, width)
            return pixels, cells, self.targets.of_scene(image_id)

        def batch(start: int) -> Examples:
            examples = map(example, rows[start : start + self.batch_size])
            return Examples(
                *(torch.from_numpy(np.stack(arrays)) for arrays in zip(*examples, strict=True))
            )

        return prefetch(batch, range(0, len(rows), self.batch_size), ahead=2)

    def _pixels(self, image_id: str) -> NDArray[np.uint8]:
        """Return an image of the network's size (3, H, W); the first of them stay in memory,
        decoded."""
        if image_id in self.decoded:
            return self.decoded[image_id]
        pixels: NDArray[np.uint8] = self.extractor.preprocess(
            self.dataset.open_image(image_id)
        ).numpy()
        if pixels.nbytes * len(self.decoded) < MAX_DECODED_BYTES:
            self.decoded[image_id] = pixels
        return pixels


def _shifted(
    pixels: NDArray[np.uint8], random: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Shift pixels (3, H, W) by up to 1/16 of the side, reflecting the border; return the relative
    shift (x, y)."""
    side = pixels.shape[2]
    limit = round(side * MAX_SHIFT)
    x, y = random.integers(-limit, limit + 1, 2)
    columns, rows = (side - 1 - abs(side - 1 - abs(np.arange(side) - shift)) for shift in (x, y))
    return pixels[:, rows[:, None], columns], np.array([x, y]) / side


@torch.inference_mode()
def _evaluate(
    extractor: Grid, heads: WordHeads, dataset: Dataset, words: TargetVocabulary
) -> dict[str, float]:
    image_ids = [str(image_id) for image_id in dataset.images["image_id"][:VALIDATION_IMAGES]]
    targets = WordTargets(dataset, words, image_ids)
    _, height, width = extractor.map_shape
    pixels = torch.stack(
        [extractor.preprocess(dataset.open_image(image_id)) for image_id in image_ids]
    )
    cell_scores, scene_scores = [], []
    for batch in pixels.split(EVALUATED_AT_ONCE):
        cell_logits, scene_logits = heads(
            extractor.feature_map(batch.to(extractor.backbone.device))
        )
        cell_scores.append(cell_logits.flatten(0, 2).cpu().numpy())
        scene_scores.append(scene_logits.cpu().numpy())
    cells = np.concatenate(
        [
            targets.of_cells(i, targets.boxes[i], height, width).reshape(height * width, -1)
            for i in image_ids
        ]
    )
    scenes = np.stack([targets.of_scene(image_id) for image_id in image_ids])
    scores = np.concatenate(cell_scores)
    return {
        **_mean_ap("word", cells[:, :-1], scores[:, :-1]),
        **_mean_ap("object", cells[:, -1:], scores[:, -1:]),
        **_mean_ap("scene_word", scenes, np.concatenate(scene_scores)),
    }


def _mean_ap(
    name: str, truth: NDArray[np.float32], scores: NDArray[np.float32]
) -> dict[str, float]:
    present = truth.any(axis=0)
    if not present.any():
        return {}
    ap = mean_average_precision(torch.from_numpy(scores.T), torch.from_numpy(truth.T > 0))
    return {f"{name}_ap": ap, f"{name}_ap_chance": float(truth[:, present].mean())}
