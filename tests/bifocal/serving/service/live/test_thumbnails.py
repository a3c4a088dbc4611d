"""Thumbnails: rotation, metadata, and the size of all."""

import asyncio
import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from bifocal.serving.service.live.thumbnails import Thumbnails, media_type


class Waiting(Thumbnails):
    """Thumbnails made in a thread; a call waits for them."""

    def __init__(self, **limits: int) -> None:
        super().__init__(asyncio.to_thread, **limits)

    def made(self, *arguments: object) -> bytes:
        return asyncio.run(self.get(*arguments))  # type: ignore[arg-type]


def photograph(path: Path) -> Path:
    """Write a JPEG with every kind of metadata, its top half red after the rotation by EXIF."""
    image = Image.new("RGB", (400, 300), "blue")
    image.paste("red", (0, 0, 200, 300))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    exif[0x010F] = "SECRET-CAMERA"
    exif.get_ifd(0x8825)[2] = (59.0, 54.0, 30.0)
    exif.get_ifd(0x8825)[29] = "SECRET-GPS"
    image.save(path, exif=exif, comment=b"SECRET-COMMENT", icc_profile=b"SECRET-PROFILE", xmp=b"<x>SECRET-XMP</x>")
    assert path.read_bytes().count(b"SECRET") == 5
    return path


def test_a_thumbnail_is_rotated_and_has_no_metadata(tmp_path: Path) -> None:
    made = Waiting().made("item", photograph(tmp_path / "photo.jpg"), 256)
    assert b"SECRET" not in made
    with Image.open(BytesIO(made)) as image:
        assert image.size == (192, 256)
        assert not image.getexif()
        assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
        red, _, blue = np.asarray(image.convert("RGB"), float)[:100].mean(axis=(0, 1))
        assert red > 200 > 50 > blue


def test_thumbnails_are_bounded_and_forgotten(tmp_path: Path) -> None:
    file = photograph(tmp_path / "photo.jpg")
    size = len(Waiting().made("a", file, 256))
    kept = Waiting(max_bytes=2 * size)
    for name in "abc":
        kept.made(name, file, 256)
    time = file.stat().st_mtime_ns
    file.write_bytes(b"no image")
    os.utime(file, ns=(time, time))
    assert len(kept.made("c", file, 256)) == size
    with pytest.raises(ValueError, match=r"photo\.jpg"):
        kept.made("a", file, 256)  # made room for c
    kept.drop("c")
    with pytest.raises(ValueError, match=r"photo\.jpg"):
        kept.made("c", file, 256)
    assert len(kept.made("b", file, 256)) == size
    file.unlink()
    with pytest.raises(HTTPException, match="No such file"):
        kept.made("b", file, 256)


def test_a_thumbnail_above_the_pixel_limit_is_not_decoded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than max_pixels"):
        Waiting(max_pixels=1000).made("item", photograph(tmp_path / "photo.jpg"), 256)


def test_the_media_type_is_the_header_s_and_never_that_of_a_page(tmp_path: Path) -> None:
    assert media_type(photograph(tmp_path / "photo.jpg").rename(tmp_path / "photo.html")) == "image/jpeg"
    page = tmp_path / "page.jpg"
    page.write_text("<svg><script>alert(1)</script></svg>")
    with pytest.raises(ValueError, match=r"page\.jpg is not an image"):
        media_type(page)
