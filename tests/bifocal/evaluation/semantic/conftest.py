"""Drawn scenes and the embeddings of their images."""

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.corpora import Scenes


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("scenes")
    corpus = Scenes(train=12, val=1, test=20, size=64).read(folder / "images")
    write_dataset(
        folder, "Scenes", corpus, copy_images=True, max_pixels=10**6, max_rejected_fraction=0.0
    )
    return read_dataset(folder)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return normalize(torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), dim=1)
