"""Resizing of a central square."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from bifocal.onnx.pixels import center_box, resize_shorter, resize_square


@pytest.mark.parametrize("size", [(197, 40), (40, 197), (400, 301), (32, 32), (64, 48)])
def test_a_square_equals_the_center_of_the_resized_image(size: tuple[int, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    whole = resize_shorter(image, 32, "bicubic")
    expected = np.asarray(whole.crop(center_box(*whole.size, 28)), int)
    np.testing.assert_allclose(
        np.asarray(resize_square(image, 32, 28, "bicubic"), int),
        expected,
        atol=2 if max(size) > 4 * min(size) else 0,
    )


def test_a_long_image_is_not_resized_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, resize = [], Image.Image.resize

    def counted(image: Image.Image, size: tuple[int, int], *arguments: Any) -> Image.Image:
        sizes.append(size)
        return resize(image, size, *arguments)

    monkeypatch.setattr(Image.Image, "resize", counted)
    resize_square(Image.new("RGB", (20, 4_000)), 256, 224, "bicubic")
    assert sizes == [(224, 224)]
