"""Published arrays of VSE++ and SCAN: each image gets the row in its id."""

from pathlib import Path

import numpy as np
import pytest

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.corpora import PrecomputedCaptions
from bifocal.features.extractors import PrecomputedFeatures


def publish(folder: Path, rows_each: int, regions: int | None = 3) -> dict[str, np.ndarray]:
    """Write SCAN's files for four images in train, two in dev and two in test."""
    random, arrays = np.random.default_rng(0), {}
    folder.mkdir()
    for name, images in (("train", 4), ("dev", 2), ("test", 2)):
        shape = (images, 5) if regions is None else (images, regions, 5)
        arrays[name] = random.standard_normal(shape).astype(np.float32)
        np.save(folder / f"{name}_ims.npy", arrays[name].repeat(rows_each, axis=0))
        (folder / f"{name}_caps.txt").write_text(
            "".join(f"caption {n}\n" for n in range(5 * images))
        )
        (folder / f"{name}_ids.txt").write_text("".join(f"{1000 + n}\n" for n in range(images)))
    return arrays


def prepare(source: Path, target: Path) -> Dataset:
    target.mkdir()
    corpus = PrecomputedCaptions(root=source).read(target / "images")
    write_dataset(
        target,
        "PrecomputedCaptions",
        corpus,
        copy_images=False,
        max_pixels=1,
        max_rejected_fraction=0.0,
    )
    return read_dataset(target)


@pytest.mark.parametrize("rows_each", [1, 5])
@pytest.mark.parametrize("regions", [None, 3])
def test_precomputed_features_are_the_row_of_the_image(
    rows_each: int, regions: int | None, tmp_path: Path
) -> None:
    arrays = publish(tmp_path / "published", rows_each, regions)
    dataset = prepare(tmp_path / "published", tmp_path / "dataset")
    opened = PrecomputedFeatures().open(dataset)
    assert (opened.regions, opened.dim) == (regions or 1, 5)
    expected = np.concatenate([arrays[name] for name in ("train", "dev", "test")]).reshape(8, -1, 5)
    records = list(opened.read(list(dataset.images["image_id"])))
    assert [image_id for image_id, _ in records] == list(dataset.images["image_id"])
    for (_, image), row in zip(records, expected, strict=True):
        np.testing.assert_array_equal(image.features.numpy(), row)
        assert image.boxes is None


def test_precomputed_features_in_wrong_files_are_an_error(tmp_path: Path) -> None:
    publish(tmp_path / "published", 1)
    dataset = prepare(tmp_path / "published", tmp_path / "dataset")
    with pytest.raises(
        ValueError, match=r"PrecomputedFeatures needs .*nowhere/train_ims\.npy: no such file"
    ):
        PrecomputedFeatures(tmp_path / "nowhere").open(dataset)
    path = tmp_path / "published" / "dev_ims.npy"
    whole = path.read_bytes()
    for broken, message in (
        (np.ones((2, 4, 5), np.float32), r"differ in regions x dimension"),
        (np.array([["a"], ["b"]]), r"dev_ims\.npy has shape \(2, 1\) of <U1"),
        (np.ones(3), r"dev_ims\.npy has shape \(3,\)"),
    ):
        np.save(path, broken)
        with pytest.raises(ValueError, match=message):
            PrecomputedFeatures().open(dataset)
    path.write_bytes(whole[:-7])
    with pytest.raises(ValueError, match=r"dev_ims\.npy is not a complete array"):
        PrecomputedFeatures().open(dataset)
    np.save(path, np.array([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"dev_ims\.npy is not a complete array"):
        PrecomputedFeatures().open(dataset)


def test_precomputed_row_that_is_not_finite_is_an_error(tmp_path: Path) -> None:
    publish(tmp_path / "published", 1)
    dataset = prepare(tmp_path / "published", tmp_path / "dataset")
    path = tmp_path / "published" / "train_ims.npy"
    array = np.load(path)
    array[1].reshape(-1)[0] = np.nan
    np.save(path, array)
    image_ids = [str(image_id) for image_id in dataset.split("train").images["image_id"]]
    with pytest.raises(
        ValueError, match=r"train_ims\.npy, row 0*1 \(image 'train-000001.*region 0 is nan"
    ):
        list(PrecomputedFeatures().open(dataset).read(image_ids))
