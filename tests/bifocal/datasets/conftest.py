"""Small photographs for corpora that the tests write themselves."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Photograph = Callable[..., Path]


@pytest.fixture
def photograph() -> Photograph:
    """Writes noise as an image file of the format that its suffix names; another ``seed``, another image."""

    def write(path: Path, seed: int = 0, width: int = 24, height: int = 16) -> Path:
        pixels = np.random.default_rng(seed).integers(0, 256, size=(height, width, 3), dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        return path

    return write
