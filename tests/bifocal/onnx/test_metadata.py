"""Metadata of image files never decide whether the pixels are read; valid orientations, dates and
colors are used."""

import struct
import zlib
from datetime import datetime
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, features

from bifocal.onnx.images import LargeImageError, decode_image, image_size, open_header
from bifocal.onnx.metadata import date_of, parse_date
from tests.bifocal.color_profiles import SRGB, swapped_profile
from tests.bifocal.image_files import (
    COLOR,
    HEIGHT,
    ORIENTED,
    WIDTH,
    chunk,
    drawing_with,
    entry,
    exif_of,
    exif_with_dates,
    photo_with,
    saved,
    segment,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")
SIZES = ((WIDTH, HEIGHT), (HEIGHT, WIDTH))


def read(file: bytes) -> tuple[Image.Image, datetime | None]:
    """Return an image and its date; its size by the header must be the same."""
    image = decode_image(BytesIO(file), None)
    assert image.size == image_size(BytesIO(file))
    assert image.size in SIZES
    with open_header(BytesIO(file)) as header:
        return image, date_of(header)


def color_of(file: bytes) -> np.ndarray:
    return np.asarray(read(file)[0])[3, 3].astype(int)


entries = st.builds(
    entry,
    st.sampled_from(
        [0x0100, 0x0112, 0x011A, 0x0132, 0x0201, 0x02BC, 0x8769, 0x8825, 0x9003, 0x9201, 0x927C]
    ),
    st.integers(0, 14),
    st.sampled_from([0, 1, 2, 20, 2**31, 2**32 - 1]),
    st.binary(min_size=4, max_size=4),
)
blocks = st.one_of(
    st.binary(max_size=60).map(lambda tail: b"Exif\0\0" + tail),
    st.builds(
        lambda found, tail: exif_of(*found, tail=tail),
        st.lists(entries, max_size=5),
        st.binary(max_size=40),
    ),
)


@given(exif=blocks)
def test_no_exif_block_loses_a_photograph(exif: bytes) -> None:
    for file in (
        photo_with(segment(0xE1, exif)),
        drawing_with(chunk(b"eXIf", exif[6:])),
        saved("WEBP", exif=exif),
    ):
        image, _ = read(file)
        assert np.abs(np.asarray(image).astype(int) - COLOR).max() < 12


@given(
    chunks=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    b"tEXt",
                    b"zTXt",
                    b"iTXt",
                    b"iCCP",
                    b"eXIf",
                    b"gAMA",
                    b"sRGB",
                    b"pHYs",
                    b"tRNS",
                    b"acTL",
                    b"fcTL",
                    b"tIME",
                    b"prVt",
                    b"cHRM",
                    b"sBIT",
                ]
            ),
            st.binary(max_size=40),
            st.one_of(st.none(), st.integers(0, 2**32 - 1)),
        ),
        max_size=4,
    ),
    mode=st.sampled_from(["RGB", "L", "P"]),
)
def test_no_other_chunk_loses_a_png(
    chunks: list[tuple[bytes, bytes, int | None]], mode: str
) -> None:
    file, others = saved("PNG", mode), b"".join(chunk(*values) for values in chunks)
    start = file.index(b"IDAT") - 4
    read(file[:start] + others + file[start:-12] + others + file[-12:])


STARTS = (
    b"",
    b"MPF\0",
    b"Photoshop 3.0\0",
    b"ICC_PROFILE\0",
    b"Exif\0\0",
    b"http://ns.adobe.com/xap/1.0/\0",
)


@given(
    parts=st.lists(
        st.tuples(st.integers(0xE1, 0xFE), st.sampled_from(STARTS), st.binary(max_size=60)),
        max_size=4,
    )
)
def test_no_other_segment_loses_a_jpeg(parts: list[tuple[int, bytes, bytes]]) -> None:
    found = [
        segment(marker, start + content)
        for marker, start, content in parts
        if marker not in range(0xEE, 0xFE)
    ]
    read(photo_with(*found))


@pytest.mark.parametrize(
    "content", [b"workflow\0" + 2 * 2**20 * b"x", b"n\0\0" + zlib.compress(bytes(2 * 2**20))]
)
def test_large_texts_of_a_png_are_skipped(content: bytes) -> None:
    kind = b"tEXt" if content.startswith(b"w") else b"zTXt"
    texts = 40 * chunk(kind, content)  # more than Pillow reads of one, and of all
    assert tuple(color_of(drawing_with(texts, after=texts))) == COLOR


@pytest.mark.parametrize(
    "value",
    [
        (0x9201, 10, 1, b"\0\0\0\x2c"),
        (0x0201, 5, 1, b"\0\0\0\x2c"),
        (0x0100, 9, 1, b"\xff\0\0\0"),
        (0x010F, 2, 64, b"\0\x0f\xff\xff"),
        (0x010F, 2, 2**32 - 1, b"\0\0\0\x08"),
        (0x0111, 5, 1, b"\0\0\0\x2c"),
        (0x011A, 3, 2, b"\0\x48\0\x48"),
        (0xC4A5, 3, 2, b"\0\1\0\2"),
        (0x8825, 4, 1, b"\0\0\0\x2c"),
        (0x8769, 4, 1, b"\0\0\0\x08"),
    ],
)
def test_orientation_counts_behind_damaged_values(value: tuple[int, int, int, bytes]) -> None:
    exif = exif_of(entry(*value), ORIENTED, tail=struct.pack(">ii", -1, 0))
    for file in (
        photo_with(segment(0xE1, exif)),
        photo_with(segment(0xE1, b"Exif\0\0" + exif)),
        drawing_with(chunk(b"eXIf", exif[6:])),
    ):
        assert read(file)[0].size == (HEIGHT, WIDTH)


def test_orientation_of_any_number_counts() -> None:
    numbers = [
        (1, b"\x06"),
        (3, b"\0\x06"),
        (4, b"\0\0\0\x06"),
        (8, b"\0\x06"),
        (9, b"\0\0\0\x06"),
        (5, b"\0\0\0\x20"),
    ]
    for kind, value in numbers:
        exif = exif_of(entry(0x0112, kind, 1, value), tail=struct.pack(">II", 6, 1))
        assert read(photo_with(segment(0xE1, exif)))[0].size == (HEIGHT, WIDTH)


def test_xmp_has_the_orientation_if_exif_has_none() -> None:
    xmp = b'<x tiff:Orientation="6"/>'
    jpeg = photo_with(segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp))
    png = drawing_with(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp))
    assert [read(file)[0].size for file in (jpeg, png)] == [(HEIGHT, WIDTH)] * 2


@pytest.mark.skipif(not features.check("avif"), reason="Pillow has no codec of AVIF")
def test_avif_with_exif_that_cannot_be_written_is_read() -> None:
    file = saved("AVIF", exif=exif_of(entry(0x0100, 9, 1, struct.pack(">i", 770001)), ORIENTED))
    damaged = file
    for order in "<>":
        for kind in (4, 9):
            old, new = (
                struct.pack(f"{order}HHIi", 256, *values)
                for values in ((kind, 1, 770001), (9, 1, -5))
            )
            damaged = damaged.replace(old, new)
    assert damaged != file
    assert read(damaged)[0].size == (HEIGHT, WIDTH)


@pytest.mark.parametrize("mode", ["RGB", "1", "P"])
@pytest.mark.parametrize("compression", [None, "group4", "tiff_lzw"])
@pytest.mark.parametrize("turn", range(1, 9))
def test_tiff_is_turned_once(mode: str, compression: str | None, turn: int) -> None:
    if compression == "group4" and mode != "1":
        return
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[: HEIGHT // 2, : WIDTH // 2] = 255
    file = BytesIO()
    Image.fromarray(pixels).convert(mode).save(
        file, "TIFF", compression=compression, tiffinfo={0x0112: turn}
    )
    image = np.asarray(read(file.getvalue())[0])[..., 0]
    corners = ((0, 0), (0, -1), (-1, -1), (-1, 0))
    assert image.shape == ((WIDTH, HEIGHT) if turn > 4 else (HEIGHT, WIDTH))
    assert [image[place] for place in corners].count(255) == 1
    assert image[corners[(turn - 1) % 4]] == 255


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-07-12 16:54:27", "2013-07-12T16:54:27"),
        ("2013/07/12", "2013-07-12"),
        ("2013:07:12T16:54", "2013-07-12T16:54"),
        ("2013: 7:12 16:54: 7", "2013-07-12T16:54:07"),
        ("2013:07:12 24:00:00", "2013-07-13"),
        ("2024:02:21 10:14:22.27-05:30", "2024-02-21T10:14:22"),
        (b"2015:06:07 08:09:10\0", "2015-06-07T08:09:10"),
        ("2013.07.12", "2013-07-12"),
        ("2013:7:12 16:54:7", "2013-07-12T16:54:07"),
        ("2013:07:12 16:54:07+0000", "2013-07-12T16:54:07"),
        ("2013:07:12 16:54", "2013-07-12T16:54"),
        ("0001:06:07 08:09:10", "0001-06-07T08:09:10"),
        ("9999:06:07 08:09:10", "9999-06-07T08:09:10"),
        ("2013:13:45 99:99:99", None),
        (b"\xff" * 20, None),
        ("1850:01:01 00:00:00", "1850-01-01"),
        ("0000:00:00 00:00:00", None),
        ("    :  :     :  :  ", None),
        ("2015:02:30 08:09:10", None),
        ("1373648067", None),
        ("2016:12:31 23:59:60", "2017-01-01"),
        ("2013:07:12 \u4e0b\u5348 04:54:27".encode(), "2013-07-12T16:54:27"),
        ("9999:12:31 24:00:00", None),
        (7, None),
        (None, None),
    ],
)
def test_dates_in_the_spellings_of_cameras(text: object, expected: str | None) -> None:
    assert parse_date(text) == (None if expected is None else datetime.fromisoformat(expected))


@given(
    moment=st.datetimes(datetime(1850, 1, 1), datetime(9998, 1, 1)),
    form=st.sampled_from(
        [
            "{0:%Y:%m:%d %H:%M:%S}", "{0:%Y-%m-%dT%H:%M:%S}", "{0:%Y:%m:%d:%H:%M:%S}",
            "{0.year:4}:{0.month:2}:{0.day:2} {0.hour:2}:{0.minute:2}:{0.second:2}",
            "{0:%Y:%m:%d}  {0.hour:2}:{0:%M:%S}", "{0:%Y:%m:%d %I:%M:%S %p}", "{0:%Y/%m/%d %H-%M-%S}",
        ]
    ),
)  # fmt: skip
def test_a_time_comes_back_from_each_spelling(moment: datetime, form: str) -> None:
    assert parse_date(form.format(moment)) == moment.replace(microsecond=0)


@given(
    text=st.one_of(
        st.text(), st.binary(), st.from_regex(r"\d{4}:\d\d?:\d\d? \d\d?:\d\d?", fullmatch=True)
    )
)
def test_any_text_is_a_date_or_none(text: str | bytes) -> None:
    assert parse_date(text) is None or isinstance(parse_date(text), datetime)


@pytest.mark.parametrize("kind", [1, 2, 7])
def test_the_first_valid_date_counts(kind: int) -> None:
    zeros, digitized, changed = (
        b"0000:00:00 00:00:00\0",
        b"2003:05:05 14:08:45\0",
        b"2007:02:19 10:00:00\0",
    )
    exif = exif_with_dates((0x9003, 2, zeros), (0x9004, kind, digitized), (0x0132, 2, changed))
    assert read(photo_with(segment(0xE1, exif)))[1] == datetime(2003, 5, 5, 14, 8, 45)
    entries = [entry(0x9003, kind, 20, struct.pack(">I", 26)), tail := b""]
    assert (
        read(photo_with(segment(0xE1, exif_of(entries[0], tail=tail + digitized))))[1] is not None
    )  # in the first table


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_colors_of_another_profile_become_srgb(format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {}
    np.testing.assert_allclose(
        color_of(saved(format, icc_profile=swapped_profile(), **options)), COLOR[::-1], atol=4
    )
    for profile in (
        SRGB,
        b"no profile",
        SRGB[:200],
        SRGB.replace(b"RGB ", b"CMYK"),
        bytes(200),
        ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes(),
    ):
        same = color_of(saved(format, icc_profile=profile, **options))
        assert (same == color_of(saved(format, **options))).all()


def test_palettes_and_bands_have_the_colors_of_their_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bifocal.onnx.images.BAND", 3 * WIDTH)
    for mode in ("RGBA", "P"):
        file = BytesIO()
        image = Image.new("RGB", (WIDTH, HEIGHT), COLOR)
        image = image.convert("RGBA") if mode == "RGBA" else image.quantize(8)
        image.save(file, "PNG", icc_profile=swapped_profile())
        shown = np.asarray(read(file.getvalue())[0]).reshape(-1, 3).astype(int)
        assert np.abs(shown - COLOR[::-1]).max() <= 4


def test_profile_of_any_size_is_read() -> None:
    large = SRGB + bytes(np.random.default_rng(0).bytes(2 * 2**20))
    assert tuple(color_of(drawing_with(chunk(b"iCCP", b"p\0\0" + zlib.compress(large))))) == COLOR
    plain, profiled = (
        saved("JPEG", quality=95, **options) for options in ({}, {"icc_profile": large})
    )
    assert (color_of(plain) == color_of(profiled)).all()


def test_parts_of_a_file_are_limited() -> None:
    with pytest.raises(LargeImageError, match="too large: more than 10000 segments"):
        image_size(BytesIO(photo_with(10_001 * segment(0xE5, b""))))
    with pytest.raises(LargeImageError, match="too large: more than 10000 chunks"):
        image_size(BytesIO(drawing_with(10_001 * chunk(b"prVt", b""))))


def tiff_with(*found: bytes) -> bytes:
    """Return a TIFF of one color with further entries in its table."""
    numbers = {
        256: WIDTH,
        257: HEIGHT,
        259: 1,
        262: 1,
        273: 8,
        277: 1,
        278: HEIGHT,
        279: WIDTH * HEIGHT,
    }
    table = [
        entry(tag, 4, 1, struct.pack(">I", value)) for tag, value in (numbers | {258: 8}).items()
    ]
    start, table = 8 + WIDTH * HEIGHT, sorted([*table, *found])
    return b"MM\0*" + struct.pack(">I", start) + bytes(WIDTH * HEIGHT) + exif_of(*table)[14:]


@given(
    found=st.lists(
        st.builds(
            entry,
            st.sampled_from([270, 271, 274, 282, 305, 306, 700, 33723, 34665, 34675, 34853]),
            st.integers(0, 13),
            st.sampled_from([0, 1, 2, 20, 2**31]),
            st.binary(min_size=4, max_size=4),
        ),
        max_size=3,
    )
)
def test_no_entry_loses_a_tiff(found: list[bytes]) -> None:
    image, _ = read(tiff_with(*found))
    assert not np.asarray(image).any()


def test_a_profile_of_other_channels_is_ignored() -> None:
    for mode in ("L", "CMYK"):
        plain, other = (
            saved("JPEG", mode, quality=95, **options)
            for options in ({}, {"icc_profile": swapped_profile()})
        )
        assert (color_of(plain) == color_of(other)).all()
