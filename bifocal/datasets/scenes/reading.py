"""Draw scenes to files, and list them as a corpus."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, LabelEntry, PhraseEntry
from bifocal.datasets.scenes.captions import Sentence
from bifocal.datasets.scenes.drawing import box_of, draw_scene
from bifocal.datasets.scenes.layout import SHAPES, Scene
from bifocal.progress import track


def check_sizes(name: str, counts: Sequence[int], size: int) -> None:
    """Check the number of images of each split, and their side in pixels."""
    for split, count in zip(SPLITS, counts, strict=True):
        if count < 0:
            raise ValueError(f"{name}: {split} is {count}, expected at least 0 images")
    if size < 64:
        raise ValueError(f"{name}: size is {size} pixels, expected at least 64: small objects would not be visible")


def read_scenes(
    scene: Callable[[str, int], tuple[Scene, list[Sentence]]], counts: Sequence[int], size: int, output_dir: Path
) -> Corpus:
    """Save every scene of ``scene(split, number)`` as ``<split>/<number>.jpg``; ``counts`` are train, val and test."""
    numbers = [(split, number) for split, count in zip(SPLITS, counts, strict=True) for number in range(count)]

    def draw(item: tuple[str, int]) -> tuple[Scene, list[Sentence]]:
        drawn, sentences = scene(*item)
        # Nearly lossless; fixed settings give fixed bytes.
        draw_scene(drawn, size).save(output_dir / _path(*item), "JPEG", quality=95, subsampling=0, optimize=False)
        return drawn, sentences

    for split in SPLITS:
        (output_dir / split).mkdir(parents=True, exist_ok=True)
    entries: list[ImageEntry] = []
    captions: list[CaptionEntry] = []
    phrases: list[PhraseEntry] = []
    labels: list[LabelEntry] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = zip(numbers, pool.map(draw, numbers), strict=True)
        for (split, number), (drawn, sentences) in track(results, "drawing scenes", total=len(numbers)):
            image_id = f"{split}-{number:05d}"
            entries.append(ImageEntry(image_id, _path(split, number), split))
            labels += _labels(image_id, drawn)
            boxes = {item: box_of(item, size) for group in drawn.groups for item in group}
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
