"""Drawn scenes in place of photographs: the writers of ``layouts`` store them in published
layouts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bifocal.datasets.base import SPLITS, Box
from bifocal.datasets.scenes.captions import Sentence
from bifocal.datasets.scenes.drawing import box_of, draw_scene
from bifocal.datasets.scenes.layout import Scene, SceneObject
from bifocal.datasets.scenes.scenes import Scenes

SIDE = 96
"""Side in pixels of the squares that are drawn, before they are resized."""
SHAPES = ((120, 96), (96, 120), (112, 112))
"""Width and height of successive photographs: corpora mix landscape and portrait."""


@dataclass(frozen=True)
class Picture:
    """One photograph with its sentences and the boxes of their phrases.

    Attributes:
        number: from 1, unique in its set.
        size: width and height in pixels.
    """

    number: int
    split: str
    size: tuple[int, int]
    scene: Scene
    sentences: Sequence[Sentence]

    def image(self) -> Image.Image:
        """Draw the photograph."""
        return draw_scene(self.scene, SIDE).resize(self.size, Image.Resampling.BICUBIC)

    def save(self, path: Path) -> None:
        """Save the photograph as a JPEG file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.image().save(path, "JPEG", quality=92)

    def objects(self) -> list[SceneObject]:
        """Return all objects, in drawing order."""
        return [item for group in self.scene.groups for item in group]

    def box(self, item: SceneObject) -> Box:
        """Return the box x0 y0 x1 y1 of an object, in whole pixels; x1 and y1 are exclusive."""
        x0, y0, x1, y1 = np.array(box_of(item, SIDE)) / SIDE * np.tile(self.size, 2)
        return float(np.floor(x0)), float(np.floor(y0)), float(np.ceil(x1)), float(np.ceil(y1))


def draw(seed: int, train: int, val: int, test: int) -> list[Picture]:
    """Return the pictures of a corpus, train first."""
    scenes, pictures = Scenes(seed, train, val, test, SIDE), []
    for split, count in zip(SPLITS, (train, val, test), strict=True):
        for index in range(count):
            scene, sentences = scenes.scene(split, index)
            number = len(pictures) + 1
            pictures.append(Picture(number, split, SHAPES[number % len(SHAPES)], scene, sentences))
    return pictures


def region_features(
    picture: Picture, regions: int, dim: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return boxes (regions, 4) in pixels and features (regions, dim) as a detector of objects and
    attributes gives.

    A region on an object has the sum of a random vector for each of its attributes, a region on the
    background that of the background; both with noise, and with negative values set to 0 as after a
    ReLU.
    """
    random = np.random.default_rng(picture.number)
    width, height = picture.size
    boxes, features = [], []
    for number in range(regions):
        items = picture.objects()
        if number < 2 * len(items):
            item = items[number % len(items)]
            edges = np.array(picture.box(item)) + random.uniform(-2, 2, 4)
            look = item.appearance
            names = (look.shape, look.color, look.texture, look.size)
        else:
            x0, y0 = random.uniform(0, 0.6, 2) * (width, height)
            edges = np.array([x0, y0, x0 + 0.4 * width, y0 + 0.4 * height])
            names = (picture.scene.background,)
        boxes.append(np.clip(edges, 0, [width - 1, height - 1] * 2))
        total = sum(_vector(name, dim) for name in names) + 0.3 * random.standard_normal(dim)
        features.append(np.maximum(total, 0))
    return np.array(boxes, np.float32), np.array(features, np.float32)


def box_features(picture: Picture, item: SceneObject, dim: int) -> NDArray[np.float32]:
    """Return the features (dim,) of an object's box, as ``region_features`` computes them."""
    look, random = (
        item.appearance,
        np.random.default_rng([picture.number, picture.objects().index(item)]),
    )
    total = sum(_vector(name, dim) for name in (look.shape, look.color, look.texture, look.size))
    features: NDArray[np.float32] = np.maximum(total + 0.3 * random.standard_normal(dim), 0).astype(
        np.float32
    )
    return features


def _vector(name: str, dim: int) -> NDArray[np.float64]:
    return np.random.default_rng(list(name.encode())).standard_normal(dim)
