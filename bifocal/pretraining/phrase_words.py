"""A backbone trained here, on the phrases and boxes of the dataset itself, where no trained weights can be had.

As bottom-up features are (Anderson et al., CVPR 2018), it is taught what stands where: each cell of the feature map
predicts the words of the phrases whose boxes it lies in, and whether it lies in any. Words of the captions that no
phrase has ("grass", "night") are predicted of the whole image, from the mean of its cells.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bifocal.checkpoint import load_checkpoint, save_checkpoint
from bifocal.datasets import Dataset, open_image
from bifocal.features.extraction import prefetch
from bifocal.features.extractors.grid import Grid
from bifocal.pretraining.word_targets import TargetVocabulary, WordTargets, learnt_words
from bifocal.progress import log_line, track

VALIDATION_IMAGES = 250
WARM_UP = 0.15
SHIFT = 1 / 16


class WordHeads(nn.Module):
    """Words of each cell and of the whole image from a feature map (B, C, h, w)."""

    def __init__(self, channels: int, cell_words: int, scene_words: int) -> None:
        super().__init__()
        self.cell = nn.Linear(channels, cell_words)
        self.scene = nn.Linear(channels, scene_words)
        # Most words are absent from most cells: begin there.
        nn.init.constant_(self.cell.bias, -4.0)
        nn.init.constant_(self.scene.bias, -2.0)

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, h, w, cell words) and (B, scene words)."""
        return self.cell(maps.permute(0, 2, 3, 1)), self.scene(maps.mean(dim=(2, 3)))


def pretrain(
    kind: Grid,
    dataset: Dataset,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    min_count: int,
    positive_weight: float,
    scene_weight: float,
    checkpoints: Path,
    seed: int,
) -> dict[str, float]:
    """Train the network of ``kind`` in place, on the split "train".

    A run that was killed goes on after its last whole epoch, and ends with the weights that it would have had.

    Args:
        epochs: passes over the images.
        batch_size: images.
        learning_rate: of AdamW, at its highest: it rises for the first 15 % of the steps, then falls as a cosine.
        weight_decay: of AdamW.
        min_count: phrases (captions, for a word of the scene) that have a word, for it to be learnt.
        positive_weight: of a word that is in a cell, beside one that is not: a cell lacks most words.
        scene_weight: of the loss on the words of the whole image.
        checkpoints: a directory of this run alone.

    Returns:
        Mean average precision, in [0, 1], on the first 250 images of the split "val": ``word_ap`` over the cells,
        ``object_ap`` of lying in a box, ``scene_word_ap`` over the images; beside each, ``..._chance``.

    Raises:
        ValueError: the dataset has no phrases with boxes, or images are resized to different shapes.
    """
    if kind.backbone.resize != "square":
        raise ValueError("pretraining sees images of one shape: set resize to 'square'")
    train, validation = dataset.split("train"), dataset.split("val")
    words = learnt_words(train, min_count)
    image_ids = [str(image_id) for image_id in train.images["image_id"]]
    targets = WordTargets(train, words, image_ids)
    channels, rows, columns = kind.map_shape
    torch.manual_seed(seed)
    device = kind.backbone.device
    heads = WordHeads(channels, len(words.cell) + 1, len(words.scene)).to(device)
    kind.backbone.network.requires_grad_(True).to(memory_format=torch.channels_last)
    model = nn.ModuleDict({"network": kind.backbone.network, "heads": heads})
    weight = torch.tensor(positive_weight, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    last = checkpoints / "pretraining.safetensors"
    first = load_checkpoint(last, model, optimizer)["epoch"] if last.is_file() else 0
    steps = math.ceil(len(image_ids) / batch_size)
    for epoch in range(first, epochs):
        kind.backbone.network.train()
        batches = _batches(kind, train, targets, image_ids, batch_size, (rows, columns), seed, epoch)
        total = 0.0
        for step, (pixels, cells, scene) in enumerate(track(batches, f"backbone {epoch + 1}/{epochs}", total=steps)):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * rate((epoch * steps + step) / (epochs * steps))
            cell_logits, scene_logits = heads(kind.feature_map(pixels.to(device)))
            loss = binary_cross_entropy_with_logits(cell_logits, cells.to(device), reduction="sum", pos_weight=weight)
            loss = loss / (rows * columns)
            if len(words.scene):
                scene_loss = binary_cross_entropy_with_logits(scene_logits, scene.to(device), reduction="sum")
                loss = loss + scene_weight * scene_loss
            loss = loss / len(pixels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        save_checkpoint(last, model, optimizer, {"epoch": epoch + 1})
        log_line(f"backbone {epoch + 1}/{epochs}: loss {total / steps:.3f}")
    kind.backbone.network.eval().requires_grad_(False)
    return _average_precision(kind, heads, validation, words)


def rate(done: float) -> float:
    """Learning rate as a part of the highest, when the part ``done`` of the steps is done."""
    if done < WARM_UP:
        return done / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def _batches(
    kind: Grid,
    dataset: Dataset,
    targets: WordTargets,
    image_ids: Sequence[str],
    batch_size: int,
    cells: tuple[int, int],
    seed: int,
    epoch: int,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Pixels (B, 3, H, W), cell targets (B, h, w, V + 1), scene targets (B, S), in random order, mirrored and moved.

    A mirror is safe: the words "left" and "right" are not learnt.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(image_ids))

    def example(index: int) -> tuple[Tensor, Tensor, Tensor]:
        image_id, random = image_ids[index], np.random.default_rng([seed, epoch, index])
        pixels = kind.preprocess(open_image(dataset.image_path(image_id))).numpy()
        boxes = targets.boxes[image_id]
        if random.random() < 0.5:
            pixels, boxes = pixels[:, :, ::-1], boxes[:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [1, 0, 1, 0]
        pixels, move = _moved(pixels, random)
        cell_words = targets.of_cells(image_id, boxes + np.tile(move, 2), *cells)
        return torch.from_numpy(pixels), torch.from_numpy(cell_words), torch.from_numpy(targets.of_scene(image_id))

    examples = prefetch(example, order.tolist(), ahead=2 * batch_size)
    batch: list[tuple[Tensor, Tensor, Tensor]] = []
    for number, drawn in enumerate(examples, start=1):
        batch.append(drawn)
        if len(batch) == batch_size or number == len(order):
            pixels, cell_words, scene_words = (torch.stack(part) for part in zip(*batch, strict=True))
            yield pixels, cell_words, scene_words
            batch = []


def _moved(pixels: NDArray[np.uint8], random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Pixels (3, H, W) moved by up to 1/16 of the side, the border reflected; and the move (x, y), relative."""
    side = pixels.shape[2]
    most = round(side * SHIFT)
    x, y = random.integers(-most, most + 1, 2)
    wide = np.pad(pixels, ((0, 0), (most, most), (most, most)), mode="reflect")
    moved = wide[:, most - y : most - y + side, most - x : most - x + side]
    return np.ascontiguousarray(moved), np.array([x, y]) / side


@torch.inference_mode()
def _average_precision(kind: Grid, heads: WordHeads, dataset: Dataset, words: TargetVocabulary) -> dict[str, float]:
    image_ids = [str(image_id) for image_id in dataset.images["image_id"][:VALIDATION_IMAGES]]
    annotated = WordTargets(dataset, words, image_ids)
    _, rows, columns = kind.map_shape
    device = next(heads.parameters()).device
    cell_scores, scene_scores = [], []
    for image_id in image_ids:
        pixels = kind.preprocess(open_image(dataset.image_path(image_id)))
        cell_logits, scene_logits = heads(kind.feature_map(pixels.unsqueeze(0).to(device)))
        cell_scores.append(cell_logits.flatten(0, 2).cpu().numpy())
        scene_scores.append(scene_logits.cpu().numpy())
    cells = np.concatenate(
        [annotated.of_cells(i, annotated.boxes[i], rows, columns).reshape(rows * columns, -1) for i in image_ids]
    )
    scenes = np.stack([annotated.of_scene(image_id) for image_id in image_ids])
    scores = np.concatenate(cell_scores)
    return {
        **_mean_ap("word", cells[:, :-1], scores[:, :-1]),
        **_mean_ap("object", cells[:, -1:], scores[:, -1:]),
        **_mean_ap("scene_word", scenes, np.concatenate(scene_scores)),
    }


def _mean_ap(name: str, truth: NDArray[np.float32], scores: NDArray[np.float32]) -> dict[str, float]:
    seen = [column for column in range(truth.shape[1]) if truth[:, column].any()]
    if not seen:
        return {}
    precisions = [average_precision_score(truth[:, column], scores[:, column]) for column in seen]
    return {f"{name}_ap": float(np.mean(precisions)), f"{name}_ap_chance": float(truth[:, seen].mean())}
