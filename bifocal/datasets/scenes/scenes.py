"""Synthetic scenes: images, captions and phrases with boxes, all drawn from a seed."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, LabelEntry, PhraseEntry
from bifocal.datasets.published import PublishedCorpus
from bifocal.datasets.scenes.captions import Sentence, describe
from bifocal.datasets.scenes.drawing import box_of, draw_scene
from bifocal.datasets.scenes.layout import SHAPES, Scene, draw_layout
from bifocal.progress import track

CAPTIONS_PER_IMAGE = 5


class Scenes:
    """Scenes of 1 to 4 objects of ten shapes, eight colors, four textures and three sizes on nine backgrounds.

    Each image has five different captions of one grammar, and labels for two tasks: "count", the number of objects, and
    "shapes", presence of each of the ten shapes. Every phrase that names objects has their boxes; "two blue rings" has
    two. Its category is their shape. Words for the background and for positions ("in the top left corner") have none.

    The same seed gives the same bytes. An image depends only on the seed, its split and its number: the first 100 of
    2,000 images are the images of a set of 100.

    Args:
        seed: seed of images and captions.
        train, val, test: number of images per split.
        size: side of the square images, in pixels.

    Example:
        >>> scene, sentences = Scenes(seed=1).scene("train", 0)
        >>> len(sentences)
        5
    """

    def __init__(self, seed: int = 0, train: int = 2000, val: int = 250, test: int = 250, size: int = 128) -> None:
        for name, count in (("train", train), ("val", val), ("test", test)):
            if count < 0:
                raise ValueError(f"Scenes: {name} is {count}, expected at least 0 images")
        if size < 64:
            raise ValueError(f"Scenes: size is {size} pixels, expected at least 64: small objects would not be visible")
        self.seed, self.size = seed, size
        self.counts = (train, val, test)

    def published(self) -> PublishedCorpus:
        """Return the counts that the arguments give."""
        return PublishedCorpus(
            images=dict(zip(SPLITS, self.counts, strict=True)),
            captions_per_image=float(CAPTIONS_PER_IMAGE),
            words_per_caption=10.0,
            phrases_per_image=10.0,
            phrase_pairs=5 * self.counts[0],
            words=140,
            frequent_words=110,
            file_size=1_400 + round(0.6 * self.size**2),
            image_size=(self.size, self.size),
        )

    def scene(self, split: str, number: int) -> tuple[Scene, list[Sentence]]:
        """Return scene ``number`` (from 0) of ``split`` and its captions."""
        random = np.random.default_rng([self.seed, SPLITS.index(split), number])
        scene = draw_layout(random)
        return scene, describe(scene, CAPTIONS_PER_IMAGE, random)

    def read(self, output_dir: Path) -> Corpus:
        """Draw every scene and save it below ``output_dir`` as ``<split>/<number>.jpg``."""
        numbers = [(split, number) for split, count in zip(SPLITS, self.counts, strict=True) for number in range(count)]

        def draw(item: tuple[str, int]) -> tuple[Scene, list[Sentence]]:
            split, number = item
            scene, sentences = self.scene(split, number)
            path = output_dir / _path(split, number)
            # Nearly lossless; fixed settings give fixed bytes.
            draw_scene(scene, self.size).save(path, "JPEG", quality=95, subsampling=0, optimize=False)
            return scene, sentences

        for split in SPLITS:
            (output_dir / split).mkdir(parents=True, exist_ok=True)
        entries: list[ImageEntry] = []
        captions: list[CaptionEntry] = []
        phrases: list[PhraseEntry] = []
        labels: list[LabelEntry] = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            drawn = zip(numbers, pool.map(draw, numbers), strict=True)
            for (split, number), (scene, sentences) in track(drawn, "drawing scenes", total=len(numbers)):
                image_id = f"{split}-{number:05d}"
                entries.append(ImageEntry(image_id, _path(split, number), split))
                labels += _labels(image_id, scene)
                boxes = {item: box_of(item, self.size) for group in scene.groups for item in group}
                for sentence in sentences:
                    caption = CaptionEntry(len(captions), image_id, sentence.text)
                    captions.append(caption)
                    phrases += [
                        PhraseEntry(
                            image_id, caption.caption_id, phrase, tuple(boxes[item] for item in group),
                            group[0].appearance.shape,
                        )
                        for phrase, group in sentence.phrases
                    ]  # fmt: skip
        return Corpus(output_dir, entries, captions, phrases, labels=labels)


def _labels(image_id: str, scene: Scene) -> list[LabelEntry]:
    present = {group[0].appearance.shape for group in scene.groups}
    count = sum(len(group) for group in scene.groups)
    return [
        LabelEntry(image_id, "count", "objects", count),
        *(LabelEntry(image_id, "shapes", shape, float(shape in present)) for shape in SHAPES),
    ]


def _path(split: str, number: int) -> str:
    return f"{split}/{number:05d}.jpg"
