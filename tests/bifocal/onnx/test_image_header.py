"""Image files that are refused by their header, before their pixels are decoded."""

import struct
import time
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from bifocal.onnx.image_header import MAX_SCANS, LargeImageError, UnsupportedImageError, image_size
from bifocal.onnx.images import decode_image

WIDTH, HEIGHT = 24, 16


def png(width: int, height: int, data: bytes, *, color: int = 0, interlaced: int = 0, frames: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, interlaced)
    animation = [(b"acTL", struct.pack(">II", frames, 0))] if frames else []
    chunks = [(b"IHDR", header), *animation, (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg(scans: int, *, comment: bytes = b"") -> bytes:
    """A progressive JPEG whose last scan is repeated, up to a number of scans."""
    buffer = BytesIO()
    Image.linear_gradient("L").resize((64, 64)).save(buffer, "JPEG", progressive=True)
    file = buffer.getvalue()
    starts = [position for position in range(len(file)) if file[position : position + 2] == b"\xff\xda"]
    segment = b"\xff\xfe" + struct.pack(">H", 2 + len(comment)) + comment
    return file[:-2] + segment + (scans - len(starts)) * file[starts[-1] : -2] + file[-2:]


def test_scans_of_a_jpeg_are_limited_and_a_comment_hides_none() -> None:
    assert decode_image(BytesIO(jpeg(MAX_SCANS)), None).size == (64, 64)
    for file in (jpeg(MAX_SCANS + 1), jpeg(MAX_SCANS + 1, comment=b"\xff\xd9\xff\xd9")):
        with pytest.raises(LargeImageError, match="a JPEG of 101 scans, at most 100 are accepted"):
            image_size(BytesIO(file))
    assert image_size(BytesIO(jpeg(9, comment=500 * b"\xff\xda"))) == (64, 64)
    assert image_size(BytesIO(jpeg(9) + 500 * b"\xff\xda")) == (64, 64)


def test_frames_of_an_animation_are_limited_by_its_header() -> None:
    rows = HEIGHT * (b"\0" + WIDTH * b"\1")
    assert image_size(BytesIO(png(WIDTH, HEIGHT, rows, frames=999))) == (WIDTH, HEIGHT)
    with pytest.raises(LargeImageError, match="an animation of 1001 frames"):
        image_size(BytesIO(png(WIDTH, HEIGHT, rows, frames=1_000)))


def test_a_file_above_the_limit_of_bytes_is_not_parsed() -> None:
    with pytest.raises(LargeImageError, match="a file of 101 bytes, at most 100 are accepted"):
        image_size(BytesIO(101 * b"x"), max_bytes=100)


def test_few_bytes_cannot_declare_many_pixels() -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match="bytes are too few for 7000 x 7000 pixels"):
        decode_image(BytesIO(png(7_000, 7_000, b"")), None)
    assert time.process_time() - start < 0.1
    rows = 2_000 * (1 + 2_000) * b"\0"  # the densest file that is complete
    assert decode_image(BytesIO(png(2_000, 2_000, rows)), None).size == (2_000, 2_000)


@pytest.mark.parametrize("interlaced", [0, 1])
def test_a_png_that_ends_after_a_row_is_truncated(interlaced: int) -> None:
    buffer = BytesIO()
    Image.new("L", (WIDTH, HEIGHT)).save(buffer, "PNG")
    assert not np.asarray(decode_image(buffer, None)).any()  # all rows are there, and black
    complete = b"\0" * (HEIGHT * (1 + WIDTH))
    if interlaced:
        sides = [(3, 2), (3, 2), (6, 2), (6, 4), (12, 4), (12, 8), (24, 8)]
        complete = b"".join(rows * (b"\0" + columns * b"\1") for columns, rows in sides)
    decode_image(BytesIO(png(WIDTH, HEIGHT, complete, interlaced=interlaced)), None)
    with pytest.raises(ValueError, match="truncated"):
        decode_image(BytesIO(png(WIDTH, HEIGHT, complete[: -(1 + WIDTH)], interlaced=interlaced)), None)


def test_another_file_has_an_error_of_its_own() -> None:
    with pytest.raises(UnsupportedImageError, match="not an image in a supported format"):
        image_size(BytesIO(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"))
    with pytest.raises(ValueError, match="the file is empty"):
        image_size(BytesIO())
