"""Shared captions and near-duplicate images."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from bifocal.datasets.duplicates import (
    DECODED_SIDE,
    mismatched_captions,
    near_duplicates,
    shared_captions,
)
from bifocal.onnx.images import open_image


def scene(seed: int) -> Image.Image:
    colors = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(colors).resize((800, 600), Image.Resampling.BICUBIC)


def test_near_duplicates_finds_other_sizes_and_compressions(tmp_path: Path) -> None:
    for number in range(4):
        scene(number).save(tmp_path / f"{number}.jpg", quality=95)
    scene(2).resize((400, 300)).save(tmp_path / "copy.jpg", quality=40)
    Image.new("RGB", (300, 200), "white").save(tmp_path / "white.png")
    pairs = near_duplicates(
        ["0", "1", "2"],
        ["3", "copy", "white"],
        lambda name, side: open_image(next(tmp_path.glob(f"{name}.*")), side=side),
    )
    assert [(pair.first, pair.second) for pair in pairs] == [("2", "copy")]


def test_reduced_decoding_keeps_the_requested_side(tmp_path: Path) -> None:
    scene(0).save(tmp_path / "0.jpg")
    small = open_image(tmp_path / "0.jpg", side=DECODED_SIDE).size
    assert small == (100, 75)
    assert open_image(tmp_path / "0.jpg").size == (800, 600)


def test_shared_captions_ignores_case_and_white_space() -> None:
    captions = pd.DataFrame(
        {"image_id": ["a", "a", "b", "c"], "text": ["A  dog.", "a dog.", "a Dog.", "a cat."]}
    )
    assert shared_captions(captions).to_numpy().tolist() == [["a dog.", 2]]


WORDS = [f"word{number}" for number in range(40)]


def test_exchanged_captions_are_found_and_others_are_not() -> None:
    """200 images of four things each; ten images got the caption of another image."""
    random = np.random.default_rng(0)
    directions = random.normal(size=(40, 32))
    things = [random.choice(40, 4, replace=False) for _ in range(200)]
    images = np.stack([directions[chosen].sum(axis=0) for chosen in things]) + 0.2 * random.normal(
        size=(200, 32)
    )
    captions = [
        " ".join(WORDS[thing] for thing in random.permutation(chosen))
        for chosen in things
        for _ in range(2)
    ]
    image_of_caption = np.repeat(np.arange(200), 2)
    assert not [
        m for m in mismatched_captions(images, captions, image_of_caption) if m.better > 0.95
    ]
    wrong = random.permutation(200)[:10]
    for image, other in zip(wrong, np.roll(wrong, 1), strict=True):
        captions[2 * image] = " ".join(WORDS[thing] for thing in things[other])
    found = [
        mismatch.caption for mismatch in mismatched_captions(images, captions, image_of_caption)
    ]
    # A wrong caption fits a random rank: a tenth of them are above SUSPICIOUS by chance, the others
    # just below.
    ranks = {m.caption: m.better for m in mismatched_captions(images, captions, image_of_caption)}
    assert set(found) <= {2 * image for image in wrong}
    assert ranks


def test_too_few_images_are_not_judged() -> None:
    assert mismatched_captions(np.eye(20), ["a b"] * 20, np.arange(20)) == []
