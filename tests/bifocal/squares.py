"""A dataset to train on in seconds: colored squares on gray, with phrases that name them."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from bifocal.datasets import Dataset, read_dataset
from bifocal.datasets.tables import CAPTIONS, IMAGES, PHRASES, write_table

COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 50, 220)}
SIDE, SQUARE = 32, 12


def write_squares(directory: Path, train: int, val: int, seed: int = 0) -> Dataset:
    """Write images of two squares; the caption also names the brightness of the background."""
    random = np.random.default_rng(seed)
    (directory / "images").mkdir(parents=True)
    images, captions, phrases = [], [], []
    for number in range(train + val):
        image_id = f"image{number:03d}"
        dark = bool(random.integers(2))
        pixels = np.full((SIDE, SIDE, 3), 70 if dark else 170) + random.integers(
            -20, 20, (SIDE, SIDE, 3)
        )
        for row in range(2):
            color = str(random.choice(list(COLORS)))
            x, y = (
                int(random.integers(0, SIDE - SQUARE)),
                row * SIDE // 2 + int(random.integers(0, 4)),
            )
            pixels[y : y + SQUARE, x : x + SQUARE] = COLORS[color]
            box = [float(x), float(y), float(x + SQUARE), float(y + SQUARE)]
            phrases.append(
                {
                    "phrase_id": len(phrases),
                    "image_id": image_id,
                    "caption_id": number,
                    "phrase": f"a {color} square on the left",
                    "boxes": [box],
                }
            )
        Image.fromarray(pixels.astype(np.uint8)).save(directory / "images" / f"{image_id}.png")
        split = "train" if number < train else "val"
        size = {"width": SIDE, "height": SIDE}
        images.append(
            {"image_id": image_id, "path": f"{image_id}.png", "split": split, "sha256": "", **size}
        )
        text = f"squares in the {'dark' if dark else 'light'}"
        captions.append({"caption_id": number, "image_id": image_id, "text": text})
    write_table(directory / "images.parquet", IMAGES, images)
    write_table(directory / "captions.parquet", CAPTIONS, captions)
    write_table(directory / "phrases.parquet", PHRASES, phrases)
    (directory / "dataset.json").write_text(
        json.dumps({"source": "squares", "image_root": "images"})
    )
    return read_dataset(directory)
