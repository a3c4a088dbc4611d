"""Folders of images with captions in the formats that people have, and the dataset that is made of
one."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.corpora import ImageFolder


def picture(number: int) -> bytes:
    """A JPEG of 24 x 16 pixels that resembles no other."""
    pixels = np.random.default_rng(number).integers(0, 256, (4, 6), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((24, 16)).convert("RGB").save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def prepare(
    root: Path, tmp_path: Path, allowed: float = 1.0, **arguments: Any
) -> tuple[Dataset, pd.DataFrame]:
    """Write the dataset as the stage does; return it with its rejected entries."""
    out = tmp_path / "dataset"
    out.mkdir(exist_ok=True)
    corpus = ImageFolder(root, **arguments).read(out / "images")
    write_dataset(
        out,
        "ImageFolder",
        corpus,
        copy_images=True,
        max_pixels=10**6,
        max_rejected_fraction=allowed,
    )
    return read_dataset(out), pd.read_parquet(out / "rejected.parquet")


ROWS = [
    (f"{number}.jpg", f"caption {word} of {number}")
    for number in range(10)
    for word in ("one", "two")
]


def write_csv(path: Path, header: str = "image,caption", delimiter: str = ",") -> None:
    lines = [header.replace(",", delimiter), *(delimiter.join(row) for row in ROWS)]
    path.write_text("\n".join(lines) + "\n")


def write_jsonl(path: Path) -> None:
    path.write_text(
        "\n".join(
            json.dumps({"file_name": image, "text": text, "city": "Rome"}) for image, text in ROWS
        )
    )


def write_list_jsonl(path: Path) -> None:
    texts: dict[str, list[str]] = {}
    for image, text in ROWS:
        texts.setdefault(image, []).append(text)
    path.write_text(
        "\n".join(json.dumps({"image": image, "captions": text}) for image, text in texts.items())
    )


def write_sidecars(root: Path) -> None:
    for number in range(10):
        (root / f"{number}.txt").write_text(
            "".join(f"{text}\n" for image, text in ROWS if image == f"{number}.jpg")
        )


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_shards(root: Path) -> None:
    """Two shards as img2dataset writes them; images of the folder move into them."""
    for shard in range(2):
        with tarfile.open(root / f"0000{shard}.tar", "w") as tar:
            for number in range(5 * shard, 5 * shard + 5):
                lines = [text for image, text in ROWS if image == f"{number}.jpg"]
                add(tar, f"{number:09}.jpg", picture(number))
                add(tar, f"{number:09}.txt", "\n".join(lines).encode())
                add(
                    tar,
                    f"{number:09}.json",
                    json.dumps({"caption": lines[0], "url": f"http://x/{number}"}).encode(),
                )
                (root / f"{number}.jpg").unlink()
