"""Image files with metadata that tests make by hand: EXIF blocks, segments of a JPEG, chunks of a
PNG."""

import struct
import zlib
from io import BytesIO

from PIL import Image

WIDTH, HEIGHT = 24, 16
COLOR = (20, 20, 220)


def saved(format: str, mode: str = "RGB", **options: object) -> bytes:
    file = BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), COLOR).convert(mode).save(file, format, **options)
    return file.getvalue()


PHOTO, DRAWING = saved("JPEG", quality=95), saved("PNG")


def entry(tag: int, kind: int, count: int, value: bytes) -> bytes:
    return struct.pack(">HHI", tag, kind, count) + value.ljust(4, b"\0")[:4]


def exif_of(*entries: bytes, tail: bytes = b"", inner: int = 0) -> bytes:
    """Return an EXIF block; ``inner`` entries of the first table, from the end, belong to the table
    of photographs."""
    outer, table = entries[: len(entries) - inner], entries[len(entries) - inner :]
    if inner:
        outer = (*outer, entry(0x8769, 4, 1, struct.pack(">I", 8 + 6 + 12 * (len(outer) + 1))))
    blocks = [
        struct.pack(">H", len(found)) + b"".join(found) + bytes(4) for found in (outer, table)
    ]
    return b"Exif\0\0MM\0*" + struct.pack(">I", 8) + b"".join(blocks) + tail


def exif_with_dates(*dates: tuple[int, int, bytes]) -> bytes:
    """Return an EXIF block whose table of photographs has tags of a type and a value."""
    start, entries, tail = 8 + 2 + 12 * 2 + 4 + 2 + 12 * len(dates) + 4, [], b""
    for tag, kind, value in dates:
        entries.append(entry(tag, kind, len(value), struct.pack(">I", start + len(tail))))
        tail += value
    return exif_of(ORIENTED, *entries, tail=tail, inner=len(entries))


ORIENTED = entry(0x0112, 3, 1, struct.pack(">H", 6))


def segment(marker: int, content: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(content) + 2) + content


def chunk(kind: bytes, content: bytes, crc: int | None = None) -> bytes:
    total = zlib.crc32(kind + content) if crc is None else crc
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", total)


def photo_with(*segments: bytes) -> bytes:
    return PHOTO[:2] + b"".join(segments) + PHOTO[2:]


def drawing_with(*chunks: bytes, after: bytes = b"") -> bytes:
    return DRAWING[:33] + b"".join(chunks) + DRAWING[33:-12] + after + DRAWING[-12:]


def png_of(
    width: int,
    height: int,
    data: bytes = b"",
    *,
    depth: int = 8,
    color: int = 0,
    interlaced: int = 0,
    frames: int = 0,
) -> bytes:
    """Return a PNG whose header states a size that its data may not have."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    animation = chunk(b"acTL", struct.pack(">II", frames, 0)) if frames else b""
    pixels = chunk(b"IDAT", zlib.compress(data))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + animation + pixels + chunk(b"IEND", b"")


def with_scans(jpeg: bytes, scans: int, *segments: bytes) -> bytes:
    """Repeat the last scan of a progressive JPEG, behind further segments, up to a number of
    scans."""
    last = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    return jpeg[:-2] + b"".join(segments) + (scans - jpeg.count(b"\xff\xda")) * last + jpeg[-2:]
