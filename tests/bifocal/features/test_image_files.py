"""Image files that are decoded when a batch is read, compared with stored pixels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter, open_features
from bifocal.features.extraction import NetworkFeatures, write_features
from bifocal.features.extractors import ImageFiles, Pixels
from bifocal.features.image_files import ImageFileStore

SMALL = {"channels": [8, 16, 24, 32], "stem_width": 8}
SIZES = {"landscape": (90, 60), "portrait": (31, 70), "small": (40, 24), "large": (480, 300)}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for name, (width, height) in SIZES.items():
        coarse = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(
            folder / f"{name}.jpg", quality=95
        )
    widths, heights = zip(*SIZES.values(), strict=True)
    table = {
        "image_id": [*SIZES],
        "path": [f"{name}.jpg" for name in SIZES],
        "width": widths,
        "height": heights,
    }
    return Dataset(
        pd.DataFrame({**table, "split": "train"}), pd.DataFrame(), pd.DataFrame(), folder
    )


def write(folder: Path, extractor: ImageFiles | Pixels, dataset: Dataset) -> Path:
    source = (
        extractor.sizes(dataset)
        if isinstance(extractor, ImageFiles)
        else NetworkFeatures(extractor, dataset, 2)
    )
    folder.mkdir()
    writer = FeatureWriter(
        folder,
        regions=source.regions,
        dim=source.dim,
        metadata=source.describe(),
        images_per_file=3,
    )
    write_features(source.read(list(SIZES)), writer, total=len(SIZES))
    return folder


@pytest.mark.parametrize("resize", ["square", "aspect", "limit"])
def test_batches_are_those_of_stored_pixels(resize: str, images: Dataset, tmp_path: Path) -> None:
    stored = FeatureStore(
        write(tmp_path / "pixels", Pixels(64, resize, "resnet10t", SMALL), images)
    )
    files = open_features(
        write(tmp_path / "files", ImageFiles(64, resize, "resnet10t", SMALL), images), images
    )
    assert isinstance(files, ImageFileStore)
    assert (files.pixels, files.dim, files.image_ids) == (
        stored.pixels,
        stored.dim,
        stored.image_ids,
    )
    rows = files.rows(["small", "portrait", "landscape", "small"])
    expected, batch = stored.gather(rows), files.gather(rows)
    height, width = batch.features.shape[2:]
    assert batch.features.equal(expected.features[:, :, :height, :width])
    assert batch.mask.equal(expected.mask[:, :height, :width])
    assert expected.mask.sum() == batch.mask.sum()
    assert batch.boxes.equal(expected.boxes)
    # A JPEG of many more pixels is decoded at a fraction of its resolution: nearly the same image.
    large = files.rows(["large"])
    (reduced,), (full,) = files.gather(large).features.int(), stored.gather(large).features.int()
    difference = reduced - full[:, : reduced.shape[1], : reduced.shape[2]]
    assert difference.abs().float().mean() < 2


def test_all_batches_in_order(images: Dataset, tmp_path: Path) -> None:
    files = open_features(
        write(tmp_path / "files", ImageFiles(32, "aspect", "resnet10t", SMALL), images), images
    )
    rows = files.rows(["portrait", "large", "small"])
    batches = list(files.batches(rows, 2))
    assert [len(batch.features) for batch in batches] == [2, 1]
    assert batches[0].features.equal(files.gather(rows[:2]).features)
    assert batches[1].features.equal(files.gather(rows[2:]).features)
    assert list(files.batches(rows[:0], 2)) == []


def test_the_dataset_is_bound_when_the_store_is_opened(images: Dataset, tmp_path: Path) -> None:
    folder = write(tmp_path / "files", ImageFiles(32, "square", "resnet10t", SMALL), images)
    with pytest.raises(ValueError, match="open_features"):
        FeatureStore(folder).gather([0])
    images.image_root.rename(tmp_path / "moved")
    try:
        moved = open_features(folder, replace(images, image_root=tmp_path / "moved"))
        assert moved.gather([0, 1, 2, 3]).features.shape == (4, 3, 32, 32)
    finally:
        (tmp_path / "moved").rename(images.image_root)


def test_another_dataset_is_refused(images: Dataset, tmp_path: Path) -> None:
    folder = write(tmp_path / "files", ImageFiles(32, "aspect", "resnet10t", SMALL), images)
    turned = images.images.rename(columns={"width": "height", "height": "width"})
    with pytest.raises(ValueError, match="'landscape' has 60 x 90 pixels"):
        open_features(folder, replace(images, images=turned))


def test_damaged_file_is_named(images: Dataset, tmp_path: Path) -> None:
    store = open_features(
        write(tmp_path / "files", ImageFiles(32, "square", "resnet10t", SMALL), images), images
    )
    (tmp_path / "small.jpg").write_bytes(b"no image")
    assert isinstance(store, ImageFileStore)
    store.dataset = replace(images, image_root=tmp_path)
    with pytest.raises(ValueError, match=r"small\.jpg"):
        store.gather(store.rows(["small"]))


def test_corpus_without_image_files_is_refused(images: Dataset) -> None:
    without = replace(images, images=images.images.assign(path=None))
    with pytest.raises(ValueError, match="'landscape' has no file"):
        list(ImageFiles(32, "square", "resnet10t", SMALL).sizes(without).read(["landscape"]))


def test_preprocessed_images_have_the_sizes_of_the_tables(images: Dataset) -> None:
    extractor = ImageFiles(50, "aspect", "resnet10t", SMALL)
    for image_id, regions in extractor.sizes(images).read(list(SIZES)):
        with Image.open(images.image_path(image_id)) as image:
            (expected,) = extractor.extract([extractor.preprocess(image)])
        assert regions.features.equal(expected.features)
        assert regions.features.dtype == torch.int32
