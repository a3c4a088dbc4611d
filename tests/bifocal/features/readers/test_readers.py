"""Readers of bottom-up TSV files and of array files: values, and errors that name file and row."""

import base64
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.extraction import write_features
from bifocal.features.extractors import BottomUpTSV, ImageArrays

Example = tuple[NDArray[np.float32], NDArray[np.float32]]


def example(number: int) -> Example:
    """Features (r, 6) and boxes (r, 4) in pixels of 200 x 100."""
    random = np.random.default_rng(number)
    regions = 1 + number % 3
    corners = np.sort(random.random((regions, 2, 2)), axis=1) * [200, 100]
    return random.standard_normal((regions, 6)).astype(np.float32), corners.reshape(-1, 4).astype(
        np.float32
    )


def tsv_row(name: str, number: int) -> str:
    features, boxes = example(number)
    encoded = (base64.b64encode(array.tobytes()).decode() for array in (boxes, features))
    return "\t".join([name, "200", "100", str(len(features)), *encoded]) + "\n"


def relative(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    return boxes / np.array([200, 100, 200, 100], np.float32)


def write_tsv(folder: Path, dataset: Dataset) -> None:
    """Write the images to two files in reverse order; one image twice, and one that is not in the
    dataset."""
    rows = [
        tsv_row(image_id, number) for number, image_id in enumerate(dataset.images["image_id"])
    ][::-1]
    folder.mkdir()
    (folder / "a.tsv.0").write_text("".join(rows[:40]) + tsv_row("unknown", 1))
    (folder / "a.tsv.1").write_text(rows[0] + "".join(rows[40:]))


def test_tsv_rows_are_assigned_to_their_images(squares: Dataset, tmp_path: Path) -> None:
    write_tsv(tmp_path / "tsv", squares)
    image_ids = list(squares.images["image_id"])
    opened = BottomUpTSV(tmp_path / "tsv", regions=3).open(squares)
    assert (opened.regions, opened.dim) == (3, 6)
    records = list(opened.read(image_ids))
    assert [image_id for image_id, _ in records] == image_ids[::-1]
    for image_id, regions in records:
        features, boxes = example(image_ids.index(image_id))
        np.testing.assert_array_equal(regions.features.numpy(), features)
        np.testing.assert_allclose(regions.boxes, relative(boxes))
    assert [image_id for image_id, _ in opened.read(image_ids[5:9])] == image_ids[5:9][::-1]


def test_tsv_row_matches_an_image_id_without_its_suffix(squares: Dataset, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(tsv_row("1000092795", 0))
    opened = BottomUpTSV(tmp_path / "a.tsv").open(squares)
    assert [image_id for image_id, _ in opened.read(["1000092795.jpg"])] == ["1000092795.jpg"]


def test_truncated_tsv_names_file_and_row_and_keeps_complete_files(
    squares: Dataset, tmp_path: Path
) -> None:
    path, image_ids = tmp_path / "cut.tsv", list(squares.images["image_id"])[:8]
    rows = [tsv_row(image_id, number) for number, image_id in enumerate(image_ids)]
    for cut in (30, len(rows[6]) - 30, len(rows[6]) - 9):
        path.write_text("".join(rows[:6]) + rows[6][:cut])
        target = tmp_path / f"features{cut}"
        target.mkdir()
        opened = BottomUpTSV(path, regions=3).open(squares)
        arguments = {"regions": 3, "dim": 6, "metadata": opened.describe(), "images_per_file": 2}
        with pytest.raises(ValueError, match=r"cut\.tsv, row 7:.*truncated"):
            write_features(opened.read(image_ids), FeatureWriter(target, **arguments), 8)
        assert FeatureStore(target).image_ids == image_ids[:6]
        path.write_text("".join(rows))
        writer = FeatureWriter(target, **arguments)
        write_features(opened.read([i for i in image_ids if i not in writer.written]), writer, 8)
        assert FeatureStore(target).image_ids == image_ids


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ((1, 0, 2, np.nan), r"bad\.tsv, row 3: feature 2 of region 0 is nan"),
        ((1, 1, 0, np.inf), r"bad\.tsv, row 3: feature 0 of region 1 is inf"),
        ((0, 1, 2, 230.0), r"bad\.tsv, row 3: box 1 is .*outside the image"),
        ((0, 0, 1, -40.0), r"bad\.tsv, row 3: box 0 is .*outside the image"),
    ],
)
def test_invalid_numbers_in_a_tsv_name_file_and_row_and_keep_complete_files(
    spoil: tuple[int, int, int, float], message: str, squares: Dataset, tmp_path: Path
) -> None:
    image_ids = list(squares.images["image_id"])[:4]
    rows = [tsv_row(image_id, number + 1) for number, image_id in enumerate(image_ids)]
    array, region, column, value = spoil
    features, boxes = example(4)
    features, boxes = np.tile(features[:1], (2, 1)), np.tile(boxes[:1], (2, 1))
    (boxes, features)[array][region, column] = value
    encoded = [base64.b64encode(values.tobytes()).decode() for values in (boxes, features)]
    rows[2] = "\t".join([image_ids[2], "200", "100", "2", *encoded]) + "\n"
    (tmp_path / "bad.tsv").write_text("".join(rows))
    opened = BottomUpTSV(tmp_path / "bad.tsv", regions=3).open(squares)
    with pytest.raises(ValueError, match=message):
        write_features(
            opened.read(image_ids),
            FeatureWriter(tmp_path, regions=3, dim=6, metadata={}, images_per_file=1),
            4,
        )
    assert FeatureStore(tmp_path).image_ids == image_ids[:2]


def test_wrong_tsv_files_are_errors(squares: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"BottomUpTSV: path .*nowhere does not exist"):
        BottomUpTSV(tmp_path / "nowhere").open(squares)
    reader = BottomUpTSV(tmp_path)
    with pytest.raises(ValueError, match=r"holds no \*\.tsv file"):
        reader.open(squares)
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(ValueError, match=r"empty\.tsv has no row"):
        reader.open(squares)
    (tmp_path / "empty.tsv").write_text(tsv_row("image000", 0))
    opened = reader.open(squares)
    with pytest.raises(
        ValueError, match=r"no row for 2 images of the dataset, the first is 'image001'"
    ):
        list(opened.read(["image000", "image001", "image002"]))


@pytest.mark.parametrize("file_format", ["npy", "npz", "npz with boxes"])
def test_array_files_are_assigned_to_their_images(
    file_format: str, squares: Dataset, tmp_path: Path
) -> None:
    image_ids = list(squares.images["image_id"])
    for number, image_id in enumerate(image_ids):
        features, boxes = example(number)
        if file_format == "npy":
            np.save(tmp_path / f"{image_id}.npy", features)
        else:
            boxes_entry = (
                {"bbox": boxes, "image_w": 200, "image_h": 100}
                if file_format == "npz with boxes"
                else {}
            )
            np.savez(tmp_path / f"{image_id}.npz", x=features, **boxes_entry)
    opened = ImageArrays(tmp_path, regions=3).open(squares)
    assert (opened.regions, opened.dim) == (3, 6)
    for number, (image_id, regions) in enumerate(opened.read(image_ids)):
        features, boxes = example(number)
        assert image_id == image_ids[number]
        np.testing.assert_array_equal(regions.features.numpy(), features)
        if file_format == "npz with boxes":
            np.testing.assert_allclose(regions.boxes, relative(boxes))
        else:
            assert regions.boxes is None


def test_array_files_hold_ground_truth_boxes_of_training_images(
    squares: Dataset, tmp_path: Path
) -> None:
    for number, image_id in enumerate(squares.images["image_id"]):
        features, boxes = example(number)
        truth = {} if number % 2 else {"x_truth": features[:1] + 1, "bbox_truth": boxes[-1:]}
        np.savez(
            tmp_path / f"{image_id}.npz", x=features, bbox=boxes, image_w=200, image_h=100, **truth
        )
    source = ImageArrays(tmp_path, regions=3, truth_regions=2).open(squares)
    assert (source.regions, source.describe()) == (5, {"truth_regions": 2})
    (_, first), (_, second) = source.read(list(squares.images["image_id"])[:2])
    assert (first.truth, second.truth) == (1, 0)
    features, boxes = example(0)
    np.testing.assert_allclose(first.features, np.concatenate([features, features[:1] + 1]))
    assert first.boxes is not None
    np.testing.assert_allclose(first.boxes[-1], boxes[-1] / [200, 100, 200, 100], rtol=1e-6)


def test_wrong_array_files_are_errors(squares: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ImageArrays: path .*nowhere is not a folder"):
        ImageArrays(tmp_path / "nowhere").open(squares)
    reader = ImageArrays(tmp_path)
    with pytest.raises(
        ValueError, match=r"no file for 120 images of the dataset, such as image000\.npy"
    ):
        reader.open(squares)
    for image_id in squares.images["image_id"]:
        np.save(tmp_path / f"{image_id}.npy", example(0)[0])
    opened, path = reader.open(squares), tmp_path / "image005.npy"
    for broken in (np.ones(3), np.array([["a"]]), np.array([{"code": 1}], dtype=object)):
        np.save(path, broken, allow_pickle=True)
        with pytest.raises(ValueError, match=r"image005\.npy"):
            list(opened.read(["image005"]))
    path.write_bytes(b"half")
    with pytest.raises(ValueError, match=r"image005\.npy"):
        list(opened.read(["image005"]))


def test_array_entries_that_may_hold_a_pickle_are_not_opened(
    squares: Dataset, tmp_path: Path
) -> None:
    for image_id in squares.images["image_id"]:
        np.savez(
            tmp_path / f"{image_id}.npz",
            x=example(0)[0],
            info=np.array([{"code": 1}], dtype=object),
        )
    with zipfile.ZipFile(tmp_path / "image000.npz") as archive:
        assert "info.npy" in archive.namelist()
    opened = ImageArrays(tmp_path).open(squares)
    assert len(list(opened.read(["image000"]))) == 1
