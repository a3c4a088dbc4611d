"""Corpus of drawn scenes, and the drawing of its images."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, LabelEntry, PhraseEntry
from bifocal.datasets.scenes.captions import Sentence, describe, name_groups
from bifocal.datasets.scenes.drawing import box_of, draw_scene
from bifocal.datasets.scenes.layout import SHAPES, Scene, draw_layout
from bifocal.processors import usable_decoders
from bifocal.progress import track
from bifocal.registry import check_range

CAPTIONS_PER_IMAGE = 5
MAX_SHORT = 5
"""Every scene has so many different short captions."""


def check_sizes(counts: Sequence[int], size: int) -> None:
    """Check the number of images of each split, and their side in pixels."""
    check_range("[0, inf)", **dict(zip(SPLITS, counts, strict=True)))
    check_range("[64, inf)", size=size)  # small objects would not be visible


def read_scenes(
    scene: Callable[[str, int], tuple[Scene, list[Sentence]]],
    counts: Sequence[int],
    size: int,
    output_dir: Path,
) -> Corpus:
    """Save every scene of ``scene(split, number)`` as ``<split>/<number>.jpg``; ``counts`` are
    train, val and test."""
    numbers = [
        (split, number)
        for split, count in zip(SPLITS, counts, strict=True)
        for number in range(count)
    ]

    def draw(item: tuple[str, int]) -> tuple[Scene, list[Sentence]]:
        drawn, sentences = scene(*item)
        # Nearly lossless; fixed settings give fixed bytes.
        draw_scene(drawn, size).save(
            output_dir / _path(*item), "JPEG", quality=95, subsampling=0, optimize=False
        )
        return drawn, sentences

    for split in SPLITS:
        (output_dir / split).mkdir(parents=True, exist_ok=True)
    corpus = Corpus(output_dir)
    with ThreadPoolExecutor(usable_decoders()) as pool:
        results = zip(numbers, pool.map(draw, numbers), strict=True)
        for (split, number), (drawn, sentences) in track(
            results, "drawing scenes", total=len(numbers)
        ):
            image_id = f"{split}-{number:05d}"
            corpus.images.append(ImageEntry(image_id, _path(split, number), split))
            corpus.labels += _labels(image_id, drawn)
            boxes = {item: box_of(item, size) for group in drawn.groups for item in group}
            for sentence in sentences:
                caption = CaptionEntry(len(corpus.captions), image_id, sentence.text)
                corpus.captions.append(caption)
                corpus.phrases += [
                    PhraseEntry(
                        image_id,
                        caption.caption_id,
                        phrase,
                        tuple(boxes[item] for item in group),
                        group[0].appearance.shape,
                    )
                    for phrase, group in sentence.phrases
                ]
    return corpus


def _labels(image_id: str, scene: Scene) -> list[LabelEntry]:
    present = {group[0].appearance.shape for group in scene.groups}
    count = sum(len(group) for group in scene.groups)
    return [
        LabelEntry(image_id, "count", "objects", count),
        *(LabelEntry(image_id, "shapes", shape, float(shape in present)) for shape in SHAPES),
    ]


def _path(split: str, number: int) -> str:
    return f"{split}/{number:05d}.jpg"


class Scenes:
    """Scenes of 1 to 4 objects of ten shapes, eight colors, four textures and three sizes on nine
    backgrounds.

    Each image has five different captions of one grammar, and labels for two tasks: "count", the
    number of objects, and "shapes", presence of each of the ten shapes. Every phrase that names
    objects has their boxes; "two blue rings" has two. Its category is their shape. Words for the
    background and for positions ("in the top left corner") have none.

    The same seed gives the same bytes. An image depends only on the seed, its split and its number:
    the first 100 of 2,000 images are the images of a set of 100.

    Args:
        seed: seed of images and captions.
        train, val, test: number of images per split.
        size: side of the square images, in pixels.
        short: number of further captions per image, such as "two red stars", which name a single
            group of objects.

    Example:
        >>> scene, sentences = Scenes(seed=1).scene("train", 0)
        >>> len(sentences)
        5
    """

    def __init__(
        self,
        seed: int = 0,
        train: int = 2000,
        val: int = 250,
        test: int = 250,
        size: int = 128,
        short: int = 0,
    ) -> None:
        check_range(f"[0, {MAX_SHORT}]", short=short)
        self.seed, self.size, self.short = seed, size, short
        self.counts = (train, val, test)
        check_sizes(self.counts, size)

    def scene(self, split: str, number: int) -> tuple[Scene, list[Sentence]]:
        """Return scene ``number`` (from 0) of ``split`` and its captions."""
        random = np.random.default_rng([self.seed, SPLITS.index(split), number])
        scene = draw_layout(random)
        sentences = describe(scene, CAPTIONS_PER_IMAGE, random)
        return scene, sentences + name_groups(scene, self.short, random)

    def read(self, output_dir: Path) -> Corpus:
        """Draw every scene and save it below ``output_dir`` as ``<split>/<number>.jpg``."""
        return read_scenes(self.scene, self.counts, self.size, output_dir)
