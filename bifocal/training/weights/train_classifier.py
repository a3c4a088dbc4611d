"""Weights trained as an image classifier."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features.base import FeatureExtractor
from bifocal.registry import check_range, get, split
from bifocal.training.pretraining.image_classifier import (
    ClassificationImages,
    PixelExtractor,
    class_folders,
    labels_of,
    pretrain_classifier,
)
from bifocal.training.weights.base import TrainedWeights
from bifocal.training.weights.loaded import LoadedWeights


@dataclass(frozen=True)
class TrainClassifier(TrainedWeights):
    """Weights of ``ImageFiles`` or ``Pixels``, trained as an image classifier with the adaptation
    layer of BEAN.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, section 4.1. The classes are labels of
    the dataset, or folders of images as ImageNet is unpacked. See
    ``bifocal.training.pretraining.image_classifier``.

    Args:
        task: task of the dataset's labels; None for the class folders at ``path``.
        path: folder with ``train/<class>/`` and ``val/<class>/``; None for the labels of ``task``.
        start: weights to start from; None for random weights.
        maps: D', number of maps of the adaptation; must equal ``maps`` of the encoder.
        epochs: passes over the training images.
        batch_size: images per step.
        learning_rate: initial learning rate of AdamW; it falls to 0 as a cosine.
        weight_decay: of AdamW.
        train_backbone: whether the backbone trains, or the adaptation only.

    Raises:
        ValueError: ``task`` and ``path`` are both set or both None, or a number is out of range.
    """

    task: str | None = None
    path: str | Path | None = None
    start: LoadedWeights | None = None
    maps: int = 2400
    epochs: int = 8
    batch_size: int = 32
    learning_rate: float = 0.004
    weight_decay: float = 0.05
    train_backbone: bool = True

    parts: ClassVar[Mapping[str, str]] = {"start": "bifocal.training.weights"}

    def __post_init__(self) -> None:
        if (self.task is None) == (self.path is None):
            raise ValueError(
                f"TrainClassifier: task is {self.task!r} and path is {self.path!r}: set task "
                "to train on labels of the dataset, or path to train on class folders, and "
                "not both"
            )
        check_range("[1, inf)", maps=self.maps, epochs=self.epochs, batch_size=self.batch_size)
        check_range("[0, inf)", weight_decay=self.weight_decay)
        check_range("(0, inf)", learning_rate=self.learning_rate)

    @classmethod
    def mismatch(cls, extractor: type, arguments: Mapping[str, Any]) -> str | None:
        return None if issubclass(extractor, PixelExtractor) else _refusal(extractor)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        yield from super().conflicts(arguments)
        start = arguments.get("start")
        if start is not None and not issubclass(
            get(cls.parts["start"], split(start)[0]), LoadedWeights
        ):
            yield (
                f"start is {split(start)[0]}, expected weights that are not trained: "
                "Pretrained or FromFile"
            )

    def train(
        self, extractor: FeatureExtractor, dataset: Dataset, checkpoints: Path, seed: int
    ) -> tuple[Mapping[str, Tensor], Mapping[str, float]]:
        if not isinstance(extractor, PixelExtractor):
            raise ValueError(_refusal(type(extractor)))
        train, validation = self._images(dataset)
        if self.start is not None:
            self.start.load(extractor.backbone)
        return pretrain_classifier(
            extractor,
            train,
            validation,
            maps=self.maps,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            train_backbone=self.train_backbone,
            checkpoints=checkpoints,
            seed=seed,
        )

    def _images(self, dataset: Dataset) -> tuple[ClassificationImages, ClassificationImages]:
        if self.task is not None:
            train = labels_of(dataset.split("train"), self.task)
            return train, labels_of(dataset.split("val"), self.task, train.names)
        assert self.path is not None  # the constructor checks it
        train = class_folders(Path(self.path) / "train")
        return train, class_folders(Path(self.path) / "val", train.names)


def _refusal(extractor: type) -> str:
    return (
        f"TrainClassifier trains the backbone of Pixels or ImageFiles, not of {extractor.__name__}"
    )
