"""Small dataset with feature and text stores: eight kinds of image, each described by a few
words."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore
from bifocal.text.vectorizers import Word2Vec
from bifocal.text.vectorizers.base import write_text
from tests.bifocal.squares import write_squares

KINDS = (
    "a red ball",
    "a blue cube",
    "two green dogs",
    "an old house",
    "the sea",
    "a tall tree",
    "some bread",
    "a car",
)
REGIONS, DIM = 3, 12


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, FeatureStore, TextStore]:
    """40 images, one per pair of 8 kinds and 5 marks; the features and both captions contain the
    kind and the mark."""
    folder = tmp_path_factory.mktemp("stores")
    for name in ("features", "text"):
        (folder / name).mkdir()
    random = np.random.default_rng(0)
    marks = [f"mark{number}" for number in range(5)]
    kinds, signs = random.normal(size=(8, DIM)), random.normal(size=(5, DIM))
    image_ids, captions = [], []
    with FeatureWriter(
        folder / "features", regions=REGIONS, dim=DIM, metadata={}, images_per_file=16
    ) as writer:
        for number in range(40):
            kind, mark = number % 8, number // 8
            image_ids.append(f"image {number}")
            captions += [f"{KINDS[kind]} with {marks[mark]}", f"{marks[mark]} on {KINDS[kind]}"]
            regions = np.stack([kinds[kind], signs[mark], 0.1 * random.normal(size=DIM)])
            writer.add(image_ids[-1], regions.astype(np.float32))
    vectorizer = Word2Vec(dim=8, min_count=1)
    vectorizer.fit(captions, seed=0)
    write_text(folder / "text", vectorizer, range(80), captions)
    tables = Dataset(
        images=pd.DataFrame({"image_id": image_ids, "split": "train"}),
        captions=pd.DataFrame(
            {"caption_id": range(80), "image_id": np.repeat(image_ids, 2), "text": captions},
        ),
        phrases=pd.DataFrame(),
        image_root=folder,
    )
    return tables, FeatureStore(folder / "features"), TextStore(folder / "text")


@pytest.fixture(scope="session")
def pairs(stores: tuple[Dataset, FeatureStore, TextStore]) -> ImageCaptionPairs:
    """Return all pairs of ``stores``."""
    return ImageCaptionPairs(*stores)


@pytest.fixture
def kill_at() -> Callable[[int], Callable[[], None]]:
    """Function ``kill_at(n)``: it returns a function whose n-th call raises
    ``KeyboardInterrupt``."""

    def make(number: int) -> Callable[[], None]:
        calls = iter(range(1, number + 1))

        def tick() -> None:
            if next(calls, number) == number:
                raise KeyboardInterrupt

        return tick

    return make


@pytest.fixture
def sigterm_at() -> Callable[[int], Callable[[], None]]:
    """Function ``sigterm_at(n)``: it returns a function whose n-th call sends SIGTERM to this
    process."""

    def make(number: int) -> Callable[[], None]:
        calls = iter(range(1, number + 1))

        def tick() -> None:
            if next(calls, None) == number:
                os.kill(os.getpid(), signal.SIGTERM)

        return tick

    return make


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """Path of a folder that does not exist."""
    return tmp_path / "checkpoints"


@pytest.fixture(scope="session")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """96 training images and 24 validation images."""
    return write_squares(tmp_path_factory.mktemp("squares") / "dataset", 96, 24)


@pytest.fixture
def photograph() -> Callable[..., Path]:
    """Write noise as an image file in the format of its suffix; the seed determines the pixels."""

    def write(path: Path, seed: int = 0, width: int = 24, height: int = 16) -> Path:
        pixels = np.random.default_rng(seed).integers(
            0, 256, size=(height, width, 3), dtype=np.uint8
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        return path

    return write
