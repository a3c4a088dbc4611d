"""Thumbnails of a static copy: small for any image, and without metadata."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bifocal.serving.site.contents import MAX_BYTES, site_thumbnail


@pytest.mark.parametrize("size", [(1, 1), (3000, 15), (640, 480), (1200, 1200)])
def test_noise_becomes_small(size: tuple[int, int], tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    made = site_thumbnail(tmp_path / "noise.png")
    assert len(made) <= MAX_BYTES == 6000


def test_metadata_is_dropped_and_the_rotation_is_applied(tmp_path: Path) -> None:
    image, exif = Image.new("RGB", (400, 200), "red"), Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a secret place"
    image.save(tmp_path / "photo.jpg", exif=exif, comment=b"a secret place")
    (tmp_path / "small.webp").write_bytes(site_thumbnail(tmp_path / "photo.jpg"))
    assert b"secret" in (tmp_path / "photo.jpg").read_bytes()
    assert b"secret" not in (tmp_path / "small.webp").read_bytes()
    with Image.open(tmp_path / "small.webp") as small:
        assert (small.format, small.size) == ("WEBP", (128, 256))
        assert not small.getexif()


def test_no_image(tmp_path: Path) -> None:
    (tmp_path / "letter.png").write_text("no image")
    with pytest.raises(ValueError, match="not an image"):
        site_thumbnail(tmp_path / "letter.png")
