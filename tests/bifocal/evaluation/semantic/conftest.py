"""Drawn scenes and the embeddings of their images."""

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.datasets import Dataset, read_dataset
from tests.bifocal.datasets.small import write_scenes


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("scenes")
    write_scenes(folder, 12, 1, 20)
    return read_dataset(folder)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return normalize(torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), dim=1)
