"""The feature store: values survive a round trip in any order of access and after any
interruption."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bifocal.features import FeatureStore, FeatureWriter

Record = tuple[str, NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


def records(images: int, regions: int, dim: int, seed: int = 0) -> list[Record]:
    random = np.random.default_rng(seed)
    result = []
    for number in range(images):
        count = int(random.integers(0, regions + 1))
        corners = np.sort(random.random((count, 2, 2)), axis=1)
        features = random.standard_normal((count, dim)).astype(np.float16).astype(np.float32)
        boxes = corners.reshape(count, 4).astype(np.float32)
        result.append((f"image {number}", features, boxes, random.random(count).astype(np.float32)))
    return result


def writer(directory: Path, **changes: Any) -> FeatureWriter:
    arguments: dict[str, Any] = {
        "regions": 3,
        "dim": 4,
        "metadata": {"layer": 7},
        "images_per_file": 4,
    }
    return FeatureWriter(directory, **arguments | changes)


def file_bytes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.arrow"))}


@given(
    images=st.integers(1, 12),
    regions=st.integers(1, 5),
    dim=st.integers(1, 6),
    images_per_file=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_gather_returns_what_was_written(
    images: int, regions: int, dim: int, images_per_file: int, seed: int
) -> None:
    written = records(images, regions, dim, seed)
    with tempfile.TemporaryDirectory() as directory:
        with writer(
            Path(directory), regions=regions, dim=dim, images_per_file=images_per_file
        ) as target:
            for record in written:
                target.add(*record)
        store = FeatureStore(Path(directory))
        assert store.image_ids == [record[0] for record in written]
        assert (len(store), store.regions, store.dim, store.metadata["layer"]) == (
            images,
            regions,
            dim,
            7,
        )
        order = np.random.default_rng(seed).integers(0, images, 2 * images)
        batch, scores = store.gather(order), store.scores(order)
        assert batch.features.dtype == torch.float16
        for position, row in enumerate(order):
            _, features, boxes, region_scores = written[row]
            assert batch.mask[position].tolist() == [
                region < len(features) for region in range(regions)
            ]
            for values, expected in (
                (batch.features[position], features),
                (batch.boxes[position], boxes),
                (scores[position], region_scores),
            ):
                np.testing.assert_array_equal(values[: len(features)].numpy(), expected)
                assert not values[len(features) :].any()


def test_ground_truth_boxes_are_read_by_number_only(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    written = []
    with writer(tmp_path, regions=5, metadata={"truth_regions": 2}) as target:
        for number in range(9):
            count, truth = number % 4, number % 3
            corners = (
                np.sort(random.random((count + truth, 2, 2)), axis=1)
                .reshape(-1, 4)
                .astype(np.float32)
            )
            features = random.standard_normal((count + truth, 4)).astype(np.float16)
            target.add(f"image {number}", features, corners, truth=truth)
            written.append((features, corners, count, truth))
        with pytest.raises(
            ValueError, match="image 'x' has 3 ground-truth boxes, expected at most 2"
        ):
            target.add("x", features[:1].repeat(3, axis=0), corners[:1].repeat(3, axis=0), truth=3)
        with pytest.raises(ValueError, match=r"are \(4, 4\), expected at most 3 regions x 4"):
            target.add("x", np.ones((4, 4), np.float32))
    store = FeatureStore(tmp_path)
    assert (store.regions, store.truth_regions) == (3, 2)
    batch = store.gather(range(9))
    assert batch.features.shape == (9, 3, 4)
    assert batch.boxes.equal(store.boxes(range(9)))
    assert (
        store.counts(range(9)).tolist()
        == batch.mask.sum(dim=1).tolist()
        == [row[2] for row in written]
    )
    assert store.truth_boxes(range(9)).isfinite().all(dim=2).sum(dim=1).tolist() == [
        row[3] for row in written
    ]
    numbers = [
        (row, region)
        for row in (8, 2, 5, 8)
        for region in (*range(row % 4), *range(3, 3 + row % 3))
    ]
    single = store.gather_regions([row for row, _ in numbers], [region for _, region in numbers])
    assert single.mask.tolist() == [[True]] * len(numbers)
    for features, box, (row, region) in zip(single.features, single.boxes, numbers, strict=True):
        index = region if region < 3 else written[row][2] + region - 3
        np.testing.assert_array_equal(features[0], written[row][0][index])
        np.testing.assert_array_equal(box[0], written[row][1][index])


def test_random_access_equals_sequential_access(tmp_path: Path) -> None:
    with writer(tmp_path) as target:
        for record in records(21, 3, 4):
            target.add(*record)
    store, order = FeatureStore(tmp_path), np.random.default_rng(1).permutation(21)
    for sequential, at_random in zip(
        store.gather(range(21)), store.gather(torch.from_numpy(order)), strict=True
    ):
        torch.testing.assert_close(sequential[order], at_random, rtol=0, atol=0)
    assert store.rows(["image 20", "image 3", "image 20"]).tolist() == [20, 3, 20]


@pytest.mark.parametrize("killed_after", range(12))
def test_killed_writer_resumes_after_its_last_complete_file(
    killed_after: int, tmp_path: Path
) -> None:
    written, whole, resumed = records(11, 3, 4), tmp_path / "whole", tmp_path / "resumed"
    whole.mkdir()
    resumed.mkdir()
    with writer(whole) as target:
        for record in written:
            target.add(*record)
    try:
        with writer(resumed) as target:
            for record in written[:killed_after]:
                target.add(*record)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        (resumed / f"000-{killed_after // 4:05d}.new").write_bytes(b"half a file")
    with writer(resumed) as target:
        assert target.written == [record[0] for record in written[: killed_after // 4 * 4]]
        for record in written[len(target.written) :]:
            target.add(*record)
    assert file_bytes(resumed) == file_bytes(whole)


def test_shards_written_in_parallel_form_one_store(tmp_path: Path) -> None:
    written = records(10, 3, 4)
    with writer(tmp_path, shard=1) as second, writer(tmp_path, shard=0) as first:
        for record in written[:6]:
            first.add(*record)
        for record in written[6:]:
            second.add(*record)
    assert FeatureStore(tmp_path).image_ids == [record[0] for record in written]


def test_resident_memory_is_bounded_for_a_large_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bifocal.features.store.MAX_BYTES_MAPPED", 8 << 20)
    regions, dim, images = 64, 1024, 768
    with writer(tmp_path, regions=regions, dim=dim, images_per_file=64) as target:
        for number in range(images):
            target.add(f"image {number}", np.full((regions, dim), number % 100, np.float32))
    store, process, most = FeatureStore(tmp_path), psutil.Process(), 0
    before = process.memory_info().rss
    for start in range(0, images, 32):
        batch = store.gather(range(start, start + 32))
        assert batch.features[:, 0, 0].tolist() == [
            number % 100 for number in range(start, start + 32)
        ]
        most = max(most, process.memory_info().rss - before)
    # The files are 96 MiB, a batch is 4 MiB.
    assert most < 40 << 20


def test_boxes_are_nan_if_the_source_has_none(tmp_path: Path) -> None:
    with writer(tmp_path) as target:
        target.add("a", np.ones((2, 4)))
    batch = FeatureStore(tmp_path).gather([0])
    assert batch.boxes[0, :2].isnan().all()
    assert batch.mask.tolist() == [[True, True, False]]


@pytest.mark.parametrize(
    ("features", "boxes", "scores", "message"),
    [
        (np.array([[0, 0, np.nan, 0]]), None, None, r"image 'cat'.*region 0, feature 2 is nan"),
        (
            np.array([[0, 0, 0, 0], [0, 7e4, 0, 0]]),
            None,
            None,
            r"image 'cat'.*region 1, feature 1 is 70000",
        ),
        (np.zeros((4, 4)), None, None, r"image 'cat' are \(4, 4\), expected at most 3 regions x 4"),
        (np.zeros((1, 5)), None, None, r"image 'cat' are \(1, 5\)"),
        (np.zeros((1, 4)), np.array([[0, 0, 1.2, 1]]), None, r"box 0 of image 'cat'.*1\.2"),
        (np.zeros((1, 4)), np.array([[0.5, 0, 0.4, 1]]), None, r"box 0 of image 'cat'.*x0 <= x1"),
        (np.zeros((1, 4)), np.array([[0, 0, np.nan, 1]]), None, r"box 0 of image 'cat'"),
        (
            np.zeros((2, 4)),
            np.zeros((1, 4)),
            None,
            r"boxes of image 'cat' are \(1, 4\), expected \(2, 4\)",
        ),
        (np.zeros((2, 4)), None, np.zeros(3), r"scores of image 'cat' are \(3,\)"),
    ],
)
def test_invalid_records_are_errors_that_name_the_image(
    features: NDArray[np.float64],
    boxes: NDArray[np.float64] | None,
    scores: NDArray[np.float64] | None,
    message: str,
    tmp_path: Path,
) -> None:
    good, target = records(4, 3, 4), writer(tmp_path)
    for record in good:
        target.add(*record)
    with pytest.raises(ValueError, match=message):
        target.add("cat", features, boxes, scores)
    assert FeatureStore(tmp_path).image_ids == [record[0] for record in good]


def test_files_of_other_features_are_an_error(tmp_path: Path) -> None:
    with writer(tmp_path) as target:
        target.add("a", np.ones((2, 4)))
    with pytest.raises(
        ValueError, match=r"000-00000\.arrow holds other features: its layer is 7, expected 8"
    ):
        writer(tmp_path, metadata={"layer": 8})
    with writer(tmp_path, metadata={"layer": 8}, shard=1) as target:
        target.add("b", np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"001-00000\.arrow holds other features"):
        FeatureStore(tmp_path)


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.99])
def test_truncated_file_is_an_error_that_names_it(kept: float, tmp_path: Path) -> None:
    with writer(tmp_path) as target:
        target.add("a", np.ones((2, 4)))
    path = tmp_path / "000-00000.arrow"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
    with pytest.raises(ValueError, match=r"000-00000\.arrow is not a complete file"):
        FeatureStore(tmp_path)


def test_missing_and_duplicate_images_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="extract the features first"):
        FeatureStore(tmp_path)
    with writer(tmp_path) as target:
        for number in range(5):
            target.add(f"{number}", np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"lacks 2 of 3 images, the first is 'cat'"):
        FeatureStore(tmp_path).rows(["0", "cat", "dog"])
    with writer(tmp_path, shard=1) as target:
        target.add("3", np.ones((2, 4)))
    with pytest.raises(ValueError, match="holds image '3' twice"):
        FeatureStore(tmp_path)
