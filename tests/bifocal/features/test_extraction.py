"""Extraction: order, bounded look-ahead, and the image named when something is wrong."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.datasets import Dataset, open_image
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.extraction import NetworkFeatures, prefetch, write_features
from bifocal.features.extractors import Grid


def small_grid() -> Grid:
    torch.manual_seed(0)
    return Grid("resnet10t", stage=2, size=32, model_arguments={"channels": (8, 16, 24, 32), "stem_width": 8})


def test_prefetch_keeps_the_order_and_waits_for_its_reader() -> None:
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
def test_the_store_holds_what_the_network_says_of_each_image(squares: Dataset, batch_size: int, tmp_path: Path) -> None:
    kind = small_grid()
    image_ids = list(squares.images["image_id"])
    with FeatureWriter(tmp_path, regions=kind.regions, dim=kind.dim, metadata={}, shard_size=50) as writer:
        write_features(NetworkFeatures(kind, squares, batch_size).read(image_ids), writer, total=len(image_ids))
    store = FeatureStore(tmp_path)
    assert store.image_ids == image_ids
    for row in (0, 49, 50, 119):
        (expected,) = kind.extract([kind.preprocess(open_image(squares.image_path(image_ids[row])))])
        torch.testing.assert_close(store.gather([row]).features[0].float(), expected.features, rtol=2e-3, atol=1e-3)
        assert store.gather([row]).boxes[0].equal(expected.boxes)


def test_an_image_that_makes_no_numbers_is_named_and_the_shards_before_stay(squares: Dataset, tmp_path: Path) -> None:
    kind = small_grid()
    image_ids = list(squares.images["image_id"])[:20]
    network_extract, calls = kind.extract, iter(range(100))

    def break_down(images: list[torch.Tensor]) -> list:
        regions = network_extract(images)
        if next(calls) == 3:
            regions[1].features[0, 0] = np.nan
        return regions

    kind.extract = break_down  # the fourth batch of 4, its second image
    writer = FeatureWriter(tmp_path, regions=kind.regions, dim=kind.dim, metadata={}, shard_size=5)
    with pytest.raises(ValueError, match=f"image '{image_ids[13]}' are not finite"):
        write_features(NetworkFeatures(kind, squares, 4).read(image_ids), writer, total=20)
    assert FeatureStore(tmp_path).image_ids == image_ids[:10]
