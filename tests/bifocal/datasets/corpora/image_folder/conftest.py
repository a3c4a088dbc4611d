"""A folder of ten images."""

from pathlib import Path

import pytest

from tests.bifocal.datasets.corpora.image_folder.writers import picture


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten images, 0.jpg to 9.jpg."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.jpg").write_bytes(picture(number))
    return folder
