"""Metadata of image files: valid values are read, others ignored; decoders of JPEG and PNG never see them."""

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from io import BytesIO
from typing import IO, Any

import numpy as np
from PIL import Image, ImageCms

ORIENTATION, EXIF = 0x0112, 0x8769
"""EXIF tags: the orientation, and the table of photographs."""
DATES = (0x9003, 0x9004, 0x0132)
"""EXIF tags of the times when a photograph was taken, digitized and changed."""
DATE = re.compile(r"(\d{4})[-:/.](\d\d?)[-:/.](\d\d?)(?:[T ](\d\d?):(\d\d?)(?::(\d\d?))?)?")
TURNS = dict(enumerate((
    Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.FLIP_TOP_BOTTOM,
    Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_270, Image.Transpose.TRANSVERSE, Image.Transpose.ROTATE_90,
), start=2))  # fmt: skip
"""Operation that makes an image upright, by its orientation."""
PNG, IEND = b"\x89PNG\r\n\x1a\n", b"IEND"
XMP = b"http://ns.adobe.com/xap/1.0/\0", b"XML:com.adobe.xmp\0"
"""Starts of the XMP data of a JPEG and of a PNG."""
XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
TEXT, BYTES, NUMBERS = 2, (1, 7), {1: "B", 3: "H", 4: "I", 5: "I4x", 6: "b", 8: "h", 9: "i", 10: "i4x"}
"""Types of EXIF values, and the formats of the first number, of a fraction its numerator."""
TRANSPARENCY = {0: range(2, 3), 2: range(6, 7), 3: range(1, 257)}
"""Valid lengths of a PNG's transparency, by the type of its colors."""
MAX_PARTS, MAX_PROFILE = 10_000, 2**24
"""Segments of a JPEG, or chunks of a PNG that hold no pixels; bytes of a color profile."""
SPACES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
TOLERANCE = 4
"""Largest difference of a value in [0, 255] between the colors of a profile and sRGB for a profile of sRGB."""
COLORS = {"colors": "sRGB"}
"""Entry in the description of vectors whose images were converted to sRGB."""


class TooManyPartsError(ValueError):
    """The file has more than ``MAX_PARTS`` parts."""


def without_metadata(file: IO[bytes]) -> tuple[IO[bytes], dict[str, bytes]]:
    """Return a JPEG or PNG without the parts that have no effect on pixels, and its EXIF, XMP and color profile.

    Other files are returned as they are.
    """
    file.seek(0)
    start = file.read(len(PNG))
    if start == PNG:
        return _split_png(start + file.read())
    if start.startswith(b"\xff\xd8\xff"):
        return _split_jpeg(start + file.read())
    return file, {}


def _split_jpeg(data: bytes) -> tuple[IO[bytes], dict[str, bytes]]:
    kept, profile, found, position = [data[:2]], list[bytes](), {"exif": b""}, 2
    for marker, start, end in _jpeg_segments(data):
        content, position = data[start:end], end
        if marker == 0xE1 and content.startswith(b"Exif\0\0"):
            found["exif"] += content[6:] if found["exif"] else content
        elif marker == 0xE1 and content.startswith(XMP[0]):
            found["xmp"] = content
        elif marker == 0xE2 and content.startswith(b"ICC_PROFILE\0"):
            profile.append(content)
        elif marker in (0xE0, 0xEE) or not 0xE0 <= marker <= 0xFE:  # JFIF and Adobe state the colors
            kept.append(data[start - 4 : end])
    if profile:
        found["icc_profile"] = b"".join(part[14:] for part in sorted(profile))
    return BytesIO(b"".join((*kept, data[position:]))), found


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield marker, start and end of the segments before the first scan."""
    position = count = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker, start = data[position + 1], position + 4
        if marker == 0xFF:
            position += 1
            continue
        if marker < 0xC0 or 0xD0 <= marker <= 0xDA:
            return
        if (count := count + 1) > MAX_PARTS:
            raise TooManyPartsError(f"more than {MAX_PARTS} segments")
        position = max(start, position + 2 + int.from_bytes(data[position + 2 : start], "big"))
        yield marker, start, position


def _split_png(data: bytes) -> tuple[IO[bytes], dict[str, bytes]]:
    kept, found, position, count, kind = [data[:8]], {"exif": b""}, 8, 0, b""
    while position + 8 <= len(data) and kind != IEND:
        length, kind = struct.unpack_from(">I4s", data, position)
        chunk, position = data[position : position + 12 + length], position + 12 + length
        count += kind != b"IDAT"
        if count > MAX_PARTS:
            raise TooManyPartsError(f"more than {MAX_PARTS} chunks")
        content = chunk[8 : 8 + length]
        if kind[:1].isupper() or (kind == b"tRNS" and length in TRANSPARENCY.get(data[25], ()) and _is_intact(chunk)):
            kept.append(chunk)
        elif kind == b"eXIf":
            found["exif"] = b"Exif\0\0" + content
        elif kind == b"iTXt" and content.startswith(XMP[1]):
            found["xmp"] = content
        elif kind == b"iCCP":
            try:
                packed = content.partition(b"\0")[2][1:]
                found["icc_profile"] = zlib.decompressobj().decompress(packed, MAX_PROFILE)
            except zlib.error:
                continue
    return BytesIO(b"".join(kept)), found


def _is_intact(chunk: bytes) -> bool:
    return zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")


def _values(image: Image.Image, tags: Iterable[int]) -> dict[int, Any]:
    """Return the valid values of EXIF tags of an image before it is decoded: numbers, and texts as bytes."""
    if image.format != "TIFF":
        found = dict(_exif_entries(image.info.get("exif") or b""))
        return {tag: found[tag] for tag in tags if tag in found}
    found = {}
    for tag in tags:
        with suppress(Exception):  # Pillow's reader of TIFF raises many exception types.
            exif = image.getexif()
            found[tag] = exif.get(tag) or exif.get_ifd(EXIF).get(tag)
    return found


def _exif_entries(block: bytes) -> Iterator[tuple[int, Any]]:
    """Yield tag and value of the first table, and then of the table of photographs. Pillow stops at an invalid one."""
    data = re.sub(rb"^(Exif\0\0)+", b"", block)
    order, tables = {b"II": "<", b"MM": ">"}.get(data[:2]), [data[4:8]]
    if order is None or len(data) < 8:
        return
    for table in tables:
        (start,) = struct.unpack(f"{order}I", table)
        count = int.from_bytes(data[start : start + 2], "little" if order == "<" else "big")
        for position in range(start + 2, min(start + 2 + 12 * count, len(data) - 11), 12):
            tag, kind, number, raw = struct.unpack_from(f"{order}HHI4s", data, position)
            is_text = kind == TEXT or (kind in BYTES and number > 1)
            form = f"{order}{min(number, len(data))}s" if is_text else order + NUMBERS.get(kind, "0s")
            size = struct.calcsize(form)
            (place,) = struct.unpack(f"{order}I", raw)
            value = raw[:size] if size <= len(raw) else data[place : place + size]
            if 0 < size == len(value):
                yield tag, struct.unpack(form, value)[0]
            if tag == EXIF and len(tables) == 1:
                tables.append(raw)


def orientation(image: Image.Image) -> int:
    """Return the valid EXIF orientation of an image before it is decoded, or else that of XMP, or else 1."""
    value, xmp = _values(image, (ORIENTATION,)).get(ORIENTATION), image.info.get("xmp")
    if value is None and isinstance(xmp, bytes) and (found := XMP_ORIENTATION.search(xmp)):
        value = int(found[1])
    return value if isinstance(value, int) and value in TURNS else 1


def date_of(image: Image.Image) -> datetime | None:
    """Return when a photograph was taken, or else digitized or changed: the first valid EXIF date."""
    dates = _values(image, DATES)
    return next((date for tag in DATES if (date := parse_date(dates.get(tag))) is not None), None)


def parse_date(value: Any) -> datetime | None:
    """Return the time in a text such as ``2013:07:12 16:54:27``, in the spellings of cameras; None for other values.

    >>> parse_date("2013/7/12 24:00")
    datetime.datetime(2013, 7, 13, 0, 0)
    """
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    # Some cameras write a space in place of a zero.
    found = DATE.match(re.sub(r"([-:/.]) +(?=\d)", r"\1", text.strip("\0 ")))
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    try:
        return datetime(year, month, day, hour % 24, minute, second) + timedelta(days=hour == 24)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=32)
def srgb_transform(profile: bytes, mode: str) -> tuple[str, ImageCms.ImageCmsTransform] | None:
    """Return the conversion of an image to sRGB by its color profile, and the mode that it takes: RGB, L or CMYK.

    None for a profile of sRGB, a damaged one, and one of other channels than the image has.
    """
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile[:MAX_PROFILE]))
        space = SPACES[source.profile.xcolor_space.strip()]
        if (space == "CMYK") != (mode == "CMYK"):
            return None
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), space, "RGB")
    except Exception:  # Pillow's reader raises many exception types.
        return None
    if space != "CMYK":
        steps = np.linspace(0, 255, 9).astype(np.uint8)
        colors = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(1, -1, 3)
        shown = np.asarray(transform.apply(Image.fromarray(colors).convert(space)))
        same = np.asarray(Image.fromarray(colors).convert(space).convert("RGB"))
        if np.abs(shown.astype(int) - same).max() <= TOLERANCE:
            return None
    return space, transform
