"""Metadata of image files: valid values are read, others ignored; decoders of JPEG and PNG never
see them."""

import re
import struct
import zlib
from collections.abc import Iterator
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
DATE = re.compile(
    r"(\d{4})[-:/.](\d\d?)[-:/.](\d\d?)"
    r"(?:[T :]+(?:(上午|下午) *)?(\d\d?)[:-](\d\d?)(?:[:-](\d\d?)(?:\.\d*)?)?(?: *([AaPp])\.?[Mm])?)?"
)
"""Day and time in the spellings of cameras, with the half of the day before or after it."""
TURNS = dict(
    enumerate(
        (
            Image.Transpose.FLIP_LEFT_RIGHT,
            Image.Transpose.ROTATE_180,
            Image.Transpose.FLIP_TOP_BOTTOM,
            Image.Transpose.TRANSPOSE,
            Image.Transpose.ROTATE_270,
            Image.Transpose.TRANSVERSE,
            Image.Transpose.ROTATE_90,
        ),
        start=2,
    )
)
"""Operation that makes an image upright, by its orientation."""
PNG, IEND = b"\x89PNG\r\n\x1a\n", b"IEND"
EOI = b"\xff\xd9"
"""End of a JPEG, which files of some cameras and downloads lack."""
XMP = b"http://ns.adobe.com/xap/1.0/\0", b"XML:com.adobe.xmp\0"
"""Starts of the XMP data of a JPEG and of a PNG."""
XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
ORDERS = {b"II": "<", b"MM": ">"}
BYTE, TEXTS = 1, (2, 7)
FORMS = {
    1: "B",
    2: "s",
    3: "H",
    4: "I",
    5: "I4x",
    6: "b",
    7: "s",
    8: "h",
    9: "i",
    10: "i4x",
    11: "f",
    12: "d",
}
"""Formats of EXIF values by type; a fraction has the format of its numerator."""
TRANSPARENCY = {0: range(2, 3), 2: range(6, 7), 3: range(1, 257)}
"""Valid lengths of a PNG's transparency, by the type of its colors."""
UNUSED = 65_000
"""Tag of a TIFF that no program reads."""
MAX_PARTS, MAX_PROFILE = 10_000, 2**24
"""Segments of a JPEG, or chunks of a PNG that hold no pixels; bytes of a color profile."""
SPACES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""Modes of Pillow for the spaces of color profiles."""
TOLERANCE = 4
"""Largest difference of a value in [0, 255] between the colors of a profile and sRGB for a profile
of sRGB."""
COLORS = {"colors": "sRGB"}
"""Entry in the description of vectors whose images were converted to sRGB."""


class LargeImageError(ValueError):
    """The image is above a limit."""


def without_metadata(file: IO[bytes]) -> tuple[IO[bytes], dict[str, bytes]]:
    """Return a JPEG or PNG without the parts that have no effect on pixels, and its EXIF, XMP and
    color profile.

    A TIFF is its own EXIF block; its entries that lead out of the file, at which Pillow stops, are
    removed. Other files are returned as they are.
    """
    file.seek(0)
    start = file.read(len(PNG))
    if start == PNG:
        return _split_png(start + file.read())
    if start.startswith(b"\xff\xd8\xff"):
        return _split_jpeg(start + file.read())
    if start[:4] not in (b"II*\0", b"MM\0*"):
        return file, {}
    whole = bytearray(start + file.read())
    for position in [position for position, _, value in _entries(bytes(whole)) if value is None]:
        struct.pack_into(f"{ORDERS[start[:2]]}HHII", whole, position, UNUSED, 1, 1, 0)
    return BytesIO(whole), {"exif": bytes(whole)}


def _split_jpeg(data: bytes) -> tuple[IO[bytes], dict[str, bytes]]:
    kept, profile, found = [data[:2]], list[bytes](), {"exif": b""}
    position = count = 2
    while position + 4 <= len(data) and data[position] == 0xFF and count <= MAX_PARTS:
        marker, start = data[position + 1], position + 4
        if marker != 0xFF and not 0xC0 <= marker < 0xD0 and marker <= 0xDA:
            break  # the first scan
        end = max(start, position + 2 + int.from_bytes(data[position + 2 : start], "big"))
        position, count, content = (
            (position + 1 if marker == 0xFF else end),
            count + 1,
            data[start:end],
        )
        if marker == 0xE1 and content.startswith(b"Exif\0\0"):
            found["exif"] += content[6:] if found["exif"] else content
        elif marker == 0xE1 and content.startswith(XMP[0]):
            found["xmp"] = content
        elif marker == 0xE2 and content.startswith(b"ICC_PROFILE\0"):
            profile.append(content)
        elif marker in (0xE0, 0xEE) or marker < 0xE0:  # JFIF and Adobe state the colors
            kept.append(data[start - 4 : end])
    if count > MAX_PARTS:
        raise LargeImageError(f"too large: more than {MAX_PARTS} segments")
    found["icc_profile"] = b"".join(part[14:] for part in sorted(profile))
    pixels = b"".join((*kept, data[position:]))
    if EOI not in data[position:]:
        found["unended"] = pixels
    return BytesIO(pixels + EOI), found


def _split_png(data: bytes) -> tuple[IO[bytes], dict[str, bytes]]:
    kept, found, position, count, kind = [data[:8]], {"exif": b""}, 8, 0, b""
    while position + 8 <= len(data) and kind != IEND:
        length, kind = struct.unpack_from(">I4s", data, position)
        chunk, position = data[position : position + 12 + length], position + 12 + length
        content, count = chunk[8:-4], count + (kind != b"IDAT")
        if count > MAX_PARTS:
            raise LargeImageError(f"too large: more than {MAX_PARTS} chunks")
        intact = (
            zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")
            if kind == b"tRNS"
            else False
        )
        if kind[:1].isupper() or (intact and length in TRANSPARENCY.get(data[25], ())):
            kept.append(chunk)
        elif kind == b"eXIf":
            found["exif"] = content
        elif kind == b"iTXt" and content.startswith(XMP[1]):
            found["xmp"] = content
        elif kind == b"iCCP":
            with suppress(zlib.error):
                packed = content.partition(b"\0")[2][1:]
                found["icc_profile"] = zlib.decompressobj().decompress(packed, MAX_PROFILE)
    return BytesIO(b"".join(kept)), found


def _entries(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield position, tag and value of the entries of the first table, and of the table of
    photographs.

    The value is the bytes of a text, or the first number, or None if it is outside the data or of
    another type.
    """
    order, tables = ORDERS.get(data[:2]), [data[4:8]]
    for table in tables if order and len(data) >= 8 else ():
        (start,) = struct.unpack(f"{order}I", table)
        count = int.from_bytes(data[start : start + 2], "little" if order == "<" else "big")
        for position in range(start + 2, min(start + 2 + 12 * count, len(data) - 11), 12):
            tag, kind, number, raw = struct.unpack_from(f"{order}HHI4s", data, position)
            form = f"{order}{FORMS.get(kind, '0s')}"
            size = number * struct.calcsize(form)
            place = position + 8 if size <= 4 else struct.unpack(f"{order}I", raw)[0]
            value = None
            if 0 < size <= len(data) - place:
                is_text = kind in TEXTS or (kind == BYTE and number > 1)
                value = (
                    data[place : place + size]
                    if is_text
                    else struct.unpack_from(form, data, place)[0]
                )
            yield position, tag, value
            if tag == EXIF and len(tables) == 1:
                tables.append(raw)


def _values(image: Image.Image) -> dict[int, Any]:
    """Return the valid EXIF values of an image before it is decoded, by tag."""
    data = re.sub(rb"^(Exif\0\0)+", b"", image.info.get("exif") or b"")
    return {tag: value for _, tag, value in _entries(data) if value is not None}


def orientation(image: Image.Image) -> int:
    """Return the orientation of an image before it is decoded: valid in EXIF, else in XMP, else
    1."""
    table, xmp = (
        getattr(image, "tag_v2", None),
        image.info.get("xmp"),
    )  # Pillow's size of a TIFF depends on its table
    value = _values(image).get(ORIENTATION) if table is None else table.get(ORIENTATION, 1)
    if value is None and isinstance(xmp, bytes) and (found := XMP_ORIENTATION.search(xmp)):
        value = int(found[1])
    return value if isinstance(value, int) and value in TURNS else 1


def date_of(image: Image.Image) -> datetime | None:
    """Return when a photograph was taken, or else digitized or changed: the first valid EXIF
    date."""
    dates = _values(image)
    return next((date for tag in DATES if (date := parse_date(dates.get(tag))) is not None), None)


def parse_date(value: Any) -> datetime | None:
    """Return the time in a text such as ``2013:07:12 16:54:27``, in the spellings of cameras; None
    for other values.

    >>> parse_date("2013/7/12 24:00")
    datetime.datetime(2013, 7, 13, 0, 0)
    """
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    # Some cameras write a space in place of a zero.
    found = DATE.match(re.sub(r"([-:/.]) +(?=\d)", r"\1", text.strip("\0 ")))
    if found is None:
        return None
    before, after = found[4], (found[8] or "").upper()
    year, month, day, hour, minute, second = (int(found[n] or 0) for n in (1, 2, 3, 5, 6, 7))
    if before or after:
        hour = hour % 12 + 12 * (before == "下午" or after == "P")
    try:
        if hour > 24 or minute > 59 or second > 60:  # 24:00 and a leap second are moments
            raise ValueError
        return datetime(year, month, day) + timedelta(hours=hour, minutes=minute, seconds=second)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=32)
def srgb_transform(profile: bytes, mode: str) -> tuple[str, ImageCms.ImageCmsTransform] | None:
    """Return the conversion of an image to sRGB by its color profile, and the mode that it takes:
    RGB, L or CMYK.

    None for a profile of sRGB, a damaged one, and one of other channels than the image has.
    """
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile[:MAX_PROFILE]))
        space = SPACES[source.profile.xcolor_space.strip()]
        if space != {"CMYK": "CMYK", "1": "L", "L": "L", "I": "L", "LA": "L"}.get(
            mode.partition(";")[0], "RGB"
        ):
            return None
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), space, "RGB")
    except Exception:  # Pillow's reader raises many exception types.
        return None
    if space != "CMYK":
        grid = np.indices((9, 9, 9), np.uint8).reshape(1, 3, -1).transpose(0, 2, 1) * 31
        colors = Image.fromarray(np.ascontiguousarray(grid)).convert(space)
        shown, same = (
            np.asarray(image, int) for image in (transform.apply(colors), colors.convert("RGB"))
        )
        if np.abs(shown - same).max() <= TOLERANCE:
            return None
    return space, transform
