"""Processes that decode image files, and thumbnails: limits, rotation, metadata, and the size of
all."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from bifocal.onnx.pixels import decode_pixels
from bifocal.serving.service.pictures import Decoders, ThumbnailCache, media_type

SQUARE = {"size": 32, "interpolation": "bicubic"}


def file(mode: str = "RGB", side: int = 64, form: str = "PNG") -> bytes:
    buffer = BytesIO()
    Image.linear_gradient("L").resize((side, side)).convert(mode).save(buffer, form)
    return buffer.getvalue()


def answers(decoders: Decoders, *calls: tuple[Any, ...]) -> list[Any]:
    """Results or refusals of calls, one after the other in one event loop."""

    async def answer() -> list[Any]:
        found: list[Any] = []
        for function, *arguments in calls:
            try:
                found.append(await decoders.run(function, *arguments))
            except HTTPException as refusal:
                found.append((refusal.status_code, refusal.detail))
        return found

    return asyncio.run(answer())


def test_results_are_those_of_this_process_and_limits_are_refused() -> None:
    large = file("RGBA", 6_000)
    pid, image, bomb, again, other, after = answers(
        Decoders(1, 60, 200_000_000),
        (os.getpid,),
        (decode_pixels, file(), SQUARE),
        (decode_pixels, large, SQUARE),
        (decode_pixels, file(), SQUARE, 100),
        (decode_pixels, b"%PDF", SQUARE),
        (os.getpid,),
    )
    assert pid != os.getpid()
    assert pid == after
    np.testing.assert_array_equal(image.pixels, decode_pixels(file(), SQUARE).pixels)
    assert image[1:] == (64, 64)
    assert bomb == (413, "too large: decoding it needs too much memory")
    assert again == (413, "too large: 64 x 64 pixels, more than max_pixels 100")
    assert other[0] == 415


def test_a_process_that_hangs_or_ends_is_replaced() -> None:
    start = time.monotonic()
    first, hung, second, ended, third = answers(
        Decoders(1, 0.5, 0),
        (os.getpid,),
        (time.sleep, 100),
        (os.getpid,),
        (os._exit, 1),
        (os.getpid,),
    )
    assert hung == (413, "the image was not decoded within 0.5 s")
    assert ended == (400, "the image cannot be decoded: its decoder failed")
    assert len({first, second, third}) == 3
    assert time.monotonic() - start < 60
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_the_event_loop_goes_on_while_an_image_is_decoded() -> None:
    async def longest_pause(work: Callable[[], Awaitable[Any]]) -> float:
        task, longest = asyncio.ensure_future(work()), 0.0
        while not task.done():
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - before)
        await task
        return longest

    async def run() -> float:
        decoders = Decoders(1, 60, 0)
        await decoders.start()
        return await longest_pause(partial(decoders.run, time.sleep, 0.7))

    assert asyncio.run(run()) < 0.6


class Waiting(ThumbnailCache):
    """Thumbnails made in a thread; a call waits for them."""

    def __init__(self, **limits: int) -> None:
        super().__init__(asyncio.to_thread, **limits)

    def made(self, item_id: str, file: Path, side: int) -> bytes:
        return asyncio.run(self.get(item_id, partial(file.open, "rb"), side))  # type: ignore[arg-type]


def photograph(path: Path) -> Path:
    """Write a JPEG with every kind of metadata, its top half red after the rotation by EXIF."""
    image = Image.new("RGB", (400, 300), "blue")
    image.paste("red", (0, 0, 200, 300))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    exif[0x010F] = "SECRET-CAMERA"
    exif.get_ifd(0x8825)[2] = (59.0, 54.0, 30.0)
    exif.get_ifd(0x8825)[29] = "SECRET-GPS"
    image.save(
        path,
        exif=exif,
        comment=b"SECRET-COMMENT",
        icc_profile=b"SECRET-PROFILE",
        xmp=b"<x>SECRET-XMP</x>",
    )
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
    with pytest.raises(ValueError, match="not an image"):
        kept.made("a", file, 256)  # made room for c
    kept.drop("c")
    with pytest.raises(ValueError, match="not an image"):
        kept.made("c", file, 256)
    assert len(kept.made("b", file, 256)) == size
    file.unlink()
    with pytest.raises(HTTPException, match="does not have the image"):
        kept.made("b", file, 256)


def test_a_thumbnail_above_the_limit_of_the_own_disk_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bifocal.onnx.image_limits.MAX_PIXELS", 1000)
    with pytest.raises(ValueError, match="more than max_pixels"):
        Waiting().made("item", photograph(tmp_path / "photo.jpg"), 256)


def test_the_media_type_is_the_header_s_and_never_that_of_a_page(tmp_path: Path) -> None:
    with photograph(tmp_path / "photo.jpg").rename(tmp_path / "photo.html").open("rb") as file:
        assert media_type(file) == "image/jpeg"
        assert not file.closed
    page = tmp_path / "page.jpg"
    page.write_text("<svg><script>alert(1)</script></svg>")
    with page.open("rb") as file, pytest.raises(ValueError, match="is not an image"):
        media_type(file)
