"""Limits of image files, and whether a file is complete, judged by its bytes."""

import os
import re
import struct
import zlib
from io import BytesIO
from typing import IO

import numpy as np
from PIL import Image

from bifocal.onnx.metadata import EOI, LargeImageError

MAX_PIXELS, VARIABLE = 250_000_000, "BIFOCAL_MAX_PIXELS"
"""Pixels of an image of the user's own disk, which takes up to 1.5 GB to decode; the variable that
raises the limit."""
MAX_SIDE, MAX_RATIO = 65_535, 200
"""Longest side in pixels, and largest ratio of the sides: a file of 69 bytes may declare 1 x
50,000,000 pixels."""
MAX_BYTES, MAX_FRAMES, MAX_SCANS = 500_000_000, 1_000, 100
"""Of a file; of an animation whose header states them; of a JPEG, each of which takes the time of
all pixels."""
INFLATED, BUFFER = 1032, 2**20
"""Bytes that one compressed byte of a PNG holds at most; bytes that are inflated at a time."""
MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels of a PNG by the type of its colors."""
WHOLE = ((0, 0, 1, 1),)
ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
"""Passes of a PNG: first column and row, and steps between columns and rows; the latter if it is
interlaced."""


def max_pixels() -> int:
    """Return the most pixels of an image of the user's own disk: ``MAX_PIXELS`` unless
    ``BIFOCAL_MAX_PIXELS`` is more.

    The variable also is the limit of a service for the images of its clients; 0 means no limit.
    """
    value = os.environ.get(VARIABLE, "1")
    if not value.isdecimal():
        raise ValueError(f"{VARIABLE} is {value!r}, expected a number; 0 means no limit")
    return max(MAX_PIXELS, int(value)) if int(value) else MAX_SIDE**2


def check_complete(image: Image.Image, file: IO[bytes]) -> None:
    """Raise ``ValueError`` for a decoded PNG whose data end early at the end of a row, which Pillow
    leaves black, and for a JPEG without an end whose pixels depend on the bytes after its own."""
    unended = image.info.get("unended")
    if unended and _outline(unended) != _outline(unended + bytes(BUFFER)):
        raise ValueError("cannot be decoded: the image file is truncated")
    if image.format != "PNG":
        return
    file.seek(0)
    width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", file.read(29)[16:])
    last = image.crop((0, height - 1, width, height))
    if not interlaced and np.asarray(last).any():
        return
    sides = [
        (-(-(width - x) // dx), -(-(height - y) // dy))
        for x, y, dx, dy in (ADAM7 if interlaced else WHOLE)
    ]
    bits = depth * CHANNELS[color]
    expected = sum(rows * (1 + (columns * bits + 7) // 8) for columns, rows in sides if columns > 0)
    if _inflated_bytes(file) < expected:
        raise ValueError("cannot be decoded: the image file is truncated")


def _outline(jpeg: bytes) -> bytes:
    """Return the pixels of a JPEG at an eighth of its resolution."""
    image = Image.open(BytesIO(jpeg + EOI))
    image.draft(None, (1, 1))
    return image.tobytes()


def check_sides(image: Image.Image, max_pixels: int | None) -> None:
    """Raise ``LargeImageError`` for an image above a limit, ``ValueError`` for an empty one."""
    width, height = image.size
    longer, shorter = max(width, height), min(width, height)
    if not shorter:
        raise ValueError(f"{width} x {height} pixels: the image is empty")
    if longer > MAX_SIDE or longer > MAX_RATIO * shorter:
        raise LargeImageError(
            f"too large: {width} x {height} pixels, at most {MAX_SIDE} on a side and "
            f"{MAX_RATIO} times the other are accepted"
        )
    if max_pixels is not None and width * height > max_pixels:
        hint = f"; the variable {VARIABLE} raises the limit" if max_pixels >= MAX_PIXELS else ""
        raise LargeImageError(
            f"too large: {width} x {height} pixels, more than max_pixels {max_pixels}{hint}"
        )


def check_header(image: Image.Image, file: IO[bytes], size: int, max_pixels: int | None) -> None:
    """Raise the errors of ``check_sides``, also for a file whose decoding would cost too much."""
    check_sides(image, max_pixels)
    width, height = image.size
    # Only the first frame is decoded. Formats that would have to be read for their number of frames
    # state none.
    frames = 1 if image.format in ("GIF", "TIFF") else getattr(image, "n_frames", 1)
    if frames > MAX_FRAMES:
        raise LargeImageError(
            f"too large: an animation of {frames} frames, at most {MAX_FRAMES} are accepted"
        )
    position = file.tell()
    if image.format == "PNG":
        file.seek(24)
        if width * height * file.read(1)[0] > 8 * INFLATED * size:
            raise ValueError(
                f"cannot be decoded: {size} bytes are too few for {width} x {height} pixels"
            )
    elif image.format in ("JPEG", "MPO"):
        file.seek(0)
        if (scans := count_scans(file.read())) > MAX_SCANS:
            raise LargeImageError(
                f"too large: a JPEG of {scans} scans, at most {MAX_SCANS} are accepted"
            )
    file.seek(position)


def count_scans(jpeg: bytes) -> int:
    """Return the number of scans of a JPEG's first image."""
    position = scans = 0
    while (marker := MARKER.search(jpeg, position)) is not None and marker.group()[1] != 0xD9:
        position = marker.end()
        scans += marker.group()[1] == 0xDA
        if marker.group()[1] not in (0x01, 0xD8):  # the others have a length
            position += int.from_bytes(jpeg[position : position + 2], "big")
    return scans


def _inflated_bytes(file: IO[bytes]) -> int:
    """Return the number of bytes that a PNG's compressed pixels hold."""
    stream, total = zlib.decompressobj(), 0
    file.seek(8)
    while len(head := file.read(8)) == 8 and not stream.eof:
        length, kind = struct.unpack(">I4s", head)
        data = file.read(length) if kind == b"IDAT" else b""
        while data:
            total += len(stream.decompress(data, BUFFER))
            data = stream.unconsumed_tail
        file.seek(length + 4 if kind != b"IDAT" else 4, os.SEEK_CUR)
    return total
