"""Extraction: order, bounded prefetching, and errors that name the image."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.datasets import Dataset
from bifocal.datasets.prefetch import prefetch
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.base import ImageRegions
from bifocal.features.extraction import NetworkFeatures, write_features
from bifocal.features.extractors import Grid
from bifocal.onnx.images import open_image


def small_grid() -> Grid:
    torch.manual_seed(0)
    return Grid(
        "resnet10t",
        stage=2,
        size=32,
        model_arguments={"channels": (8, 16, 24, 32), "stem_width": 8},
    )


def test_prefetch_keeps_the_order_and_is_bounded() -> None:
    started, lock = 0, threading.Lock()

    def slow_square(number: int) -> int:
        nonlocal started
        with lock:
            started += 1
        time.sleep(0.002 * (number % 3))
        return number**2

    results = prefetch(slow_square, range(50), ahead=6)
    for number, result in enumerate(results):
        assert result == number**2
        assert started <= number + 1 + 6


@pytest.mark.parametrize("batch_size", [1, 7, 200])
def test_store_holds_the_features_of_each_image(
    squares: Dataset, batch_size: int, tmp_path: Path
) -> None:
    extractor = small_grid()
    image_ids = list(squares.images["image_id"])
    with FeatureWriter(
        tmp_path, regions=extractor.regions, dim=extractor.dim, metadata={}, images_per_file=50
    ) as writer:
        write_features(
            NetworkFeatures(extractor, squares, batch_size).read(image_ids),
            writer,
            total=len(image_ids),
        )
    store = FeatureStore(tmp_path)
    assert store.image_ids == image_ids
    for row in (0, 49, 50, 119):
        (expected,) = extractor.extract(
            [extractor.preprocess(open_image(squares.image_path(image_ids[row])))]
        )
        torch.testing.assert_close(
            store.gather([row]).features[0].float(), expected.features, rtol=2e-3, atol=1e-3
        )
        assert store.gather([row]).boxes[0].equal(expected.boxes)


def test_ground_truth_boxes_of_training_images_get_features(
    squares: Dataset, tmp_path: Path
) -> None:
    class WholeImageAndTruth:
        backbone, regions, truth_regions, dim, keeps_weights = small_grid().backbone, 2, 1, 1, False
        decoded_side = None

        def describe(self) -> dict[str, int]:
            return {"truth_regions": self.truth_regions}

        def preprocess(self, image: object, truth: torch.Tensor | None = None) -> torch.Tensor:
            return torch.empty(0, 4) if truth is None else truth

        def extract(self, images: list[torch.Tensor]) -> list[ImageRegions]:
            whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
            return [
                ImageRegions(torch.ones(1 + len(b), 1), torch.cat([whole, b]), truth=len(b))
                for b in images
            ]

    source = NetworkFeatures(WholeImageAndTruth(), squares, batch_size=7)
    image_ids = list(squares.images["image_id"])
    with FeatureWriter(tmp_path, regions=2, dim=1, metadata=source.describe()) as writer:
        write_features(source.read(image_ids), writer, total=len(image_ids))
    store = FeatureStore(tmp_path)
    for image_id, split in zip(image_ids, squares.images["split"], strict=True):
        true = store.truth_boxes(store.rows([image_id]))[0]
        first = squares.phrases[squares.phrases["image_id"] == image_id]["boxes"].iloc[0][0]
        if split == "train":
            np.testing.assert_allclose(true[0], first / 32, atol=1e-6)
        else:
            assert true.isnan().all()


def test_features_that_are_not_finite_name_the_image_and_keep_complete_files(
    squares: Dataset, tmp_path: Path
) -> None:
    extractor = small_grid()
    image_ids = list(squares.images["image_id"])[:20]
    network_extract, calls = extractor.extract, iter(range(100))

    def extract_nan(images: list[torch.Tensor]) -> list[ImageRegions]:
        regions = network_extract(images)
        if next(calls) == 3:
            regions[1].features[0, 0] = np.nan
        return regions

    extractor.extract = extract_nan  # the fourth batch of 4, its second image
    writer = FeatureWriter(
        tmp_path, regions=extractor.regions, dim=extractor.dim, metadata={}, images_per_file=5
    )
    with pytest.raises(ValueError, match=f"image '{image_ids[13]}' are not finite"):
        write_features(NetworkFeatures(extractor, squares, 4).read(image_ids), writer, total=20)
    assert FeatureStore(tmp_path).image_ids == image_ids[:10]
