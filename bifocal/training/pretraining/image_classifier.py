"""Train an image encoder as a classifier of labels of the dataset, or of folders of images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from bifocal.backbones.timm.trainable import center_crop, random_crops
from bifocal.datasets import Dataset
from bifocal.datasets.prefetch import prefetch
from bifocal.features.extractors.image_files import ImageFiles
from bifocal.features.extractors.pixels import Pixels
from bifocal.image_encoders.bean import BEANEncoder
from bifocal.metrics import mean_average_precision
from bifocal.onnx.images import open_image
from bifocal.training.checkpoints import RunState
from bifocal.training.loop import TrainingTask, run_epochs
from bifocal.training.schedules import Cosine

EVALUATION_BATCH_SIZE = 32
PixelExtractor = Pixels | ImageFiles
Examples = tuple[list[Tensor], Tensor]
"""B images (3, H, W) uint8 and their targets (B, K)."""


@dataclass(frozen=True)
class ClassificationImages:
    """Image files and their classes or labels."""

    paths: list[Path]  # N image files
    names: list[str]  # K classes or labels
    targets: NDArray[np.float32]  # (N, K) in [0, 1]; NaN where a label is unknown
    exclusive: bool  # each image has exactly one class


def labels_of(
    dataset: Dataset, task: str, names: Sequence[str] | None = None
) -> ClassificationImages:
    """Return the images with labels of ``task``, all or ``names``; a label that an image lacks
    counts as absent."""
    rows = dataset.labels[dataset.labels["task"] == task]
    if rows.empty:
        known = ", ".join(sorted(dataset.labels["task"].unique())) or "no task"
        raise ValueError(
            f"no image of the split has labels of the task {task!r}; there are labels of {known}"
        )
    classes = sorted(rows["label"].unique()) if names is None else list(names)
    column, image_ids = (
        {name: k for k, name in enumerate(classes)},
        sorted(rows["image_id"].unique()),
    )
    index = {image_id: n for n, image_id in enumerate(image_ids)}
    targets = np.zeros((len(image_ids), len(classes)), np.float32)
    for image_id, label, value in zip(rows["image_id"], rows["label"], rows["value"], strict=True):
        if label in column:
            targets[index[image_id], column[label]] = np.nan if value is None else value
    if not ((targets >= 0) & (targets <= 1) | np.isnan(targets)).all():
        raise ValueError(
            f"labels of the task {task!r} are not all in [0, 1]: a classifier predicts presence"
        )
    paths = [dataset.image_path(image_id) for image_id in image_ids]
    return ClassificationImages(paths, classes, targets, exclusive=False)


def class_folders(root: Path, names: Sequence[str] | None = None) -> ClassificationImages:
    """Return the images of ``root/<class>/``, the layout of ImageNet; ``names`` selects classes."""
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    classes = [folder.name for folder in folders] if names is None else list(names)
    files = [
        (path, folder.name)
        for folder in folders
        if folder.name in classes
        for path in sorted(folder.iterdir())
    ]
    if not files:
        raise ValueError(
            f"{root} has no folders of images: expected one folder per class, as in ImageNet"
        )
    targets = np.eye(len(classes), dtype=np.float32)[[classes.index(name) for _, name in files]]
    return ClassificationImages([path for path, _ in files], classes, targets, exclusive=True)


def pretrain_classifier(
    extractor: PixelExtractor,
    train: ClassificationImages,
    validation: ClassificationImages,
    *,
    maps: int,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    train_backbone: bool,
    checkpoints: Path,
    seed: int,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Train the adaptation layer with a projection to the classes on its pooled maps; the
    projection is discarded.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, section 4.1. The loss is a softmax
    over exclusive classes, and otherwise a logistic loss for each label.

    Return the state ``adaptation.weight`` (``maps``, D), and metrics of ``validation`` in [0, 1]
    with their chance
    levels: ``classifier_top1`` for exclusive classes, otherwise the mean average precision over the
    labels, ``classifier_ap``.
    """
    torch.manual_seed(seed)
    backbone = extractor.backbone
    model = BEANEncoder(
        dim=train.targets.shape[1],
        maps=maps,
        dropout=0.0,
        backbone=backbone.name,
        image_size=backbone.size,
        model_arguments=backbone.model_arguments,
    ).to(backbone.device)
    assert model.backbone is not None
    model.backbone.network.load_state_dict(backbone.network.state_dict())
    model.backbone.requires_grad_(train_backbone)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)
    task = _ClassifierTask(extractor, model, train, batch_size, train_backbone, seed)
    state = RunState(checkpoints, {"model": model}, optimizer)
    run_epochs(task, state, epochs=epochs, learning_rate=learning_rate, schedule=Cosine())
    backbone.network.load_state_dict(model.backbone.network.state_dict())
    return {"adaptation.weight": model.adaptation.weight.detach().cpu()}, _evaluate(
        extractor, model, validation
    )


@dataclass
class _ClassifierTask(TrainingTask[Examples]):
    extractor: PixelExtractor
    model: BEANEncoder
    images: ClassificationImages
    batch_size: int
    train_backbone: bool
    seed: int

    name = "classifier"

    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterator[Examples]]:
        order = (
            np.random.default_rng([self.seed, epoch]).permutation(len(self.images.paths)).tolist()
        )
        rows = order[first_step * self.batch_size :]
        return -(-len(order) // self.batch_size), _read(
            self.extractor, self.images, rows, self.batch_size
        )

    def start_epoch(self, epoch: int) -> None:
        self.model.train(self.train_backbone)

    def backward(self, batch: Examples, epoch: int, step: int) -> Tensor:
        (images, targets), device, size = (
            batch,
            self.extractor.backbone.device,
            self.extractor.backbone.size,
        )
        crops = random_crops(
            [image.to(device) for image in images], min(self.model.crop or size, size)
        )
        loss = _loss(_logits(self.model, crops), targets.to(device), self.images.exclusive)
        loss.backward()
        return loss.detach()

    def size(self, batch: Examples) -> int:
        return len(batch[0])


def _logits(model: BEANEncoder, pixels: Tensor) -> Tensor:
    maps = model.adapt(model.backbone_maps(pixels))
    pooled = model.pool(maps, maps.new_ones(maps.shape[:2], dtype=torch.bool))
    logits: Tensor = model.projection(pooled)
    return logits


def _loss(logits: Tensor, targets: Tensor, exclusive: bool) -> Tensor:
    if exclusive:
        return cross_entropy(logits, targets)
    known = ~targets.isnan()
    return binary_cross_entropy_with_logits(logits[known], targets[known])


def _read(
    extractor: PixelExtractor, images: ClassificationImages, rows: Sequence[int], batch_size: int
) -> Iterator[Examples]:
    paths = [images.paths[row] for row in rows]
    pixels = prefetch(lambda path: extractor.preprocess(open_image(path)), paths, 2 * batch_size)
    for start in range(0, len(rows), batch_size):
        batch = list(rows[start : start + batch_size])
        yield [next(pixels) for _ in batch], torch.from_numpy(images.targets[batch])


@torch.inference_mode()
def _evaluate(
    extractor: PixelExtractor, model: BEANEncoder, images: ClassificationImages
) -> dict[str, float]:
    model.eval()
    batches = _read(extractor, images, range(len(images.paths)), EVALUATION_BATCH_SIZE)
    device = extractor.backbone.device
    square = extractor.backbone.resize == "square"
    views = ([image if square else center_crop(image) for image in pixels] for pixels, _ in batches)
    scores = np.concatenate(
        [_logits(model, torch.stack(view).to(device).float()).cpu().numpy() for view in views]
    )
    if images.exclusive:
        top1 = (scores.argmax(axis=1) == images.targets.argmax(axis=1)).mean()
        return {
            "classifier_top1": float(top1),
            "classifier_top1_chance": 1 / images.targets.shape[1],
        }
    present, known = images.targets.T >= 0.5, ~np.isnan(images.targets.T)
    ap = mean_average_precision(*map(torch.from_numpy, (scores.T, present, known)))
    chances = [
        row.sum() / counted.sum() for row, counted in zip(present, known, strict=True) if row.any()
    ]
    return {"classifier_ap": ap, "classifier_ap_chance": float(np.mean(chances))}
