"""A small labeled collection with a real feature store."""

from collections.abc import Callable

import numpy as np
import pytest

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.ranking_heads.labeled import LabeledFeatures
from tests.bifocal.ranking_heads.labels import label, labeled_dataset

DIM = 6


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, FeatureStore]:
    """60 frames of 30 videos with a graded label ("grade") and two binary labels ("kinds") of the
    features."""
    folder = tmp_path_factory.mktemp("store")
    random = np.random.default_rng(0)
    labels, splits = [], {}
    with FeatureWriter(folder, regions=2, dim=DIM, metadata={}, images_per_file=64) as writer:
        for number in range(60):
            name, regions = f"frame{number:02d}", random.normal(size=(2, DIM)).astype(np.float32)
            writer.add(name, regions)
            mean = regions.mean(axis=0)
            splits[name] = "train" if number < 40 else "val"
            grade, video = float(np.exp(mean[0])), f"video{number // 2}"
            labels.append(label(name, "grade", "grade", grade, video))
            labels += [
                label(name, "kinds", "left", mean[1] > 0),
                label(name, "kinds", "right", mean[2] > 0.3),
            ]
    return labeled_dataset(folder, splits, labels), FeatureStore(folder)


@pytest.fixture(scope="session")
def labeled(collection: tuple[Dataset, FeatureStore]) -> Callable[[str, str], LabeledFeatures]:
    """Function ``labeled(split, task)``."""
    return lambda split, task: LabeledFeatures(collection[0].split(split), collection[1], task)
