"""Decoding and checking of image files; files that are refused by their header, before their pixels
are decoded."""

import hashlib
import struct
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bifocal.onnx.image_limits import MAX_SCANS, max_pixels
from bifocal.onnx.images import (
    LargeImageError,
    UnsupportedImageError,
    decode_image,
    image_size,
    inspect_image,
    open_image,
)
from tests.bifocal.color_profiles import SRGB, swapped_profile
from tests.bifocal.image_files import png_of, segment, with_scans

LIMIT = 50_000_000
WIDTH, HEIGHT = 24, 16
GRAY = np.linspace(0, 65535, WIDTH * HEIGHT).reshape(HEIGHT, WIDTH).astype(np.uint16)


def save_gradient(path: Path, mode: str, **options: object) -> Path:
    """Save a gradient, dark on the left and light on the right, in one of Pillow's modes."""
    line = np.linspace(0, 255, WIDTH).astype(np.uint8)
    pixels = np.repeat(np.tile(line, (HEIGHT, 1))[..., None], 3, axis=2)
    Image.fromarray(pixels).convert(mode, palette=Image.Palette.ADAPTIVE).save(path, **options)
    return path


def brightness(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L"), dtype=float)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("rgb.jpg", "RGB"),
        ("cmyk.jpg", "CMYK"),
        ("gray.jpg", "L"),
        ("palette.png", "P"),
        ("palette.gif", "P"),
        ("rgb.bmp", "RGB"),
        ("rgb.tif", "RGB"),
        ("rgb.webp", "RGB"),
        ("alpha.png", "RGBA"),
    ],
)
def test_every_format_and_mode_opens_as_the_same_rgb_image(tmp_path, name, mode):
    path = save_gradient(tmp_path / name, mode)
    image = open_image(path)
    assert (image.mode, image.size) == ("RGB", (WIDTH, HEIGHT))
    columns = brightness(image).mean(axis=0)
    np.testing.assert_allclose(columns, np.linspace(0, 255, WIDTH), atol=12)


def test_bilevel_image_opens_as_black_and_white(tmp_path):
    path = save_gradient(tmp_path / "bilevel.png", "1")
    assert set(np.unique(np.asarray(open_image(path)))) == {0, 255}


@pytest.mark.parametrize("name", ["gray.png", "gray.tif", "gray.pgm"])
def test_16_bit_gray_is_scaled_to_8_bits(tmp_path, name):
    path = tmp_path / name
    Image.fromarray(GRAY).save(path)
    expected = np.floor(GRAY / 65535 * 255 + 1e-9)
    np.testing.assert_array_equal(brightness(open_image(path)), expected)


def test_16_bit_color_is_read(tmp_path):
    rows = b"".join(b"\0" + struct.pack(">3H", 65535, 32768, 0) * WIDTH for _ in range(HEIGHT))
    path = tmp_path / "color16.png"
    path.write_bytes(png_of(WIDTH, HEIGHT, depth=16, color=2, data=rows))
    assert np.unique(np.asarray(open_image(path)).reshape(-1, 3), axis=0).tolist() == [
        [255, 128, 0]
    ]


def test_animation_opens_as_its_first_frame(tmp_path):
    path = tmp_path / "animated.gif"
    frames = [Image.new("RGB", (WIDTH, HEIGHT), color) for color in ("red", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert open_image(path).getpixel((0, 0)) == (255, 0, 0)


def test_conversion_in_bands_equals_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("bifocal.onnx.images.BAND", 3 * WIDTH)
    for name, mode in (("a.png", "RGBA"), ("b.jpg", "CMYK"), ("c.png", "LA"), ("d.gif", "P")):
        path = save_gradient(tmp_path / name, mode)
        with Image.open(path) as image:
            opaque = image.convert("RGB" if mode in ("CMYK", "P") else "RGBA").convert("RGB")
        np.testing.assert_array_equal(np.asarray(open_image(path)), np.asarray(opaque))


def test_exif_rotation_is_applied(tmp_path):
    path = tmp_path / "rotated.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the top of the scene is the right side of the file
    save_gradient(path, "RGB", exif=exif, quality=95)
    upright = open_image(path)
    assert upright.size == (HEIGHT, WIDTH)
    assert np.all(np.diff(brightness(upright).mean(axis=1)) > 0)  # left of the file is now the top
    file = inspect_image(path, LIMIT)
    assert (file.width, file.height) == (HEIGHT, WIDTH)


def test_transparent_pixels_are_white(tmp_path):
    path = tmp_path / "clear.png"
    Image.new("RGBA", (WIDTH, HEIGHT), (200, 0, 0, 0)).save(path)
    assert open_image(path).getpixel((0, 0)) == (255, 255, 255)


def jpeg(path: Path) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, size=(64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda path: b"", "empty"),
        (lambda path: b"<html>404 not found</html>", "not an image in a supported format"),
        (
            lambda path: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
            "not an image in a supported format",
        ),
        (lambda path: jpeg(path)[:-1000], "truncated"),
        (lambda path: jpeg(path)[:200], "cannot be decoded"),
        (lambda path: png_of(WIDTH, HEIGHT, data=b"\0" * 20), "cannot be decoded"),
        (
            lambda path: png_of(WIDTH, HEIGHT)[:20],
            "cannot be decoded|not an image in a supported format",
        ),
        (lambda path: png_of(30_000, 30_000, depth=1, data=b"\0" * 10), "pixels"),
        (
            lambda path: png_of(10_000, 8_000, depth=1, data=b"\0" * 10),
            "10000 x 8000 pixels, more than max_pixels",
        ),
    ],
    ids=[
        "zero-byte",
        "html",
        "eps",
        "cut jpeg",
        "cut header",
        "short png",
        "cut png",
        "bomb",
        "over the limit",
    ],
)
def test_incomplete_image_is_rejected_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "photo.jpg"
    path.write_bytes(content(path))
    with pytest.raises(ValueError, match=reason):
        inspect_image(path, LIMIT)
    with pytest.raises(ValueError, match=rf"photo\.jpg: .*({reason})"):
        open_image(path, LIMIT)


def test_large_image_is_rejected_by_its_header(tmp_path):
    # The file has all of its 900 million pixels, compressed: decoding them would take a second and
    # 900 MB.
    path = tmp_path / "bomb.png"
    row = b"\0" * (1 + 30_000 // 8)
    path.write_bytes(png_of(30_000, 30_000, depth=1, data=row * 30_000))
    start = time.process_time()
    with pytest.raises(ValueError, match="pixels"):
        inspect_image(path, LIMIT)
    assert time.process_time() - start < 0.2


@pytest.mark.parametrize(
    ("value", "reason"), [(0.5, "floating-point"), (-1, "32-bit"), (65536, "32-bit")]
)
def test_pixels_of_unknown_range_are_rejected(tmp_path, value, reason):
    path = tmp_path / "depth.tif"
    dtype = np.float32 if isinstance(value, float) else np.int32
    Image.fromarray(np.full((HEIGHT, WIDTH), value, dtype=dtype)).save(path)
    with pytest.raises(ValueError, match=reason):
        open_image(path)


@pytest.mark.parametrize("name", ["absent.jpg", "."])
def test_missing_file_is_rejected(tmp_path, name):
    with pytest.raises(ValueError, match=r"No such file|Is a directory"):
        inspect_image(tmp_path / name, LIMIT)


def test_inspection_hashes_and_copies_the_bytes(tmp_path, photograph):
    path = photograph(tmp_path / "a.jpg")
    copy = tmp_path / "deep" / "er" / "a.jpg"
    file = inspect_image(path, LIMIT, copy=copy)
    assert copy.read_bytes() == path.read_bytes()
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_image_of_another_size_is_rejected_and_not_copied(tmp_path, photograph):
    path = photograph(tmp_path / "a.jpg", width=24, height=16)
    with pytest.raises(ValueError, match=r"24 x 16 pixels, but its boxes refer to \(16, 24\)"):
        inspect_image(path, LIMIT, size=(16, 24), copy=tmp_path / "copy.jpg")
    assert not (tmp_path / "copy.jpg").exists()


@pytest.mark.parametrize("suffix", ["avif", "heic"])
def test_photographs_of_phones_are_decoded(suffix: str, tmp_path: Path) -> None:
    from bifocal.onnx.images import image_formats

    assert {"AVIF", "HEIF"} <= set(image_formats())  # registers the encoder too
    path = tmp_path / f"photo.{suffix}"
    Image.new("RGB", (64, 32), (200, 40, 20)).save(path, quality=90)
    image = open_image(path)
    assert image.size == (64, 32)
    assert np.abs(np.asarray(image, dtype=int) - (200, 40, 20)).max() < 12


def test_a_heic_photograph_names_the_extra_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bifocal.onnx import images

    path = tmp_path / "photo.heic"
    Image.new("RGB", (64, 32)).save(path)
    monkeypatch.setattr(images, "image_formats", lambda: images.ALWAYS)
    with pytest.raises(ValueError, match=r"pip install pillow-heif"):
        open_image(path)


def jpeg_of(scans: int, *, comment: bytes = b"") -> bytes:
    """A progressive JPEG of a number of scans."""
    buffer = BytesIO()
    Image.linear_gradient("L").resize((64, 64)).save(buffer, "JPEG", progressive=True)
    return with_scans(buffer.getvalue(), scans, segment(0xFE, comment))


def test_scans_of_a_jpeg_are_limited_and_a_comment_hides_none() -> None:
    assert decode_image(BytesIO(jpeg_of(MAX_SCANS)), None).size == (64, 64)
    for file in (jpeg_of(MAX_SCANS + 1), jpeg_of(MAX_SCANS + 1, comment=b"\xff\xd9\xff\xd9")):
        with pytest.raises(LargeImageError, match="a JPEG of 101 scans, at most 100 are accepted"):
            image_size(BytesIO(file))
    assert image_size(BytesIO(jpeg_of(9, comment=500 * b"\xff\xda"))) == (64, 64)
    assert image_size(BytesIO(jpeg_of(9) + 500 * b"\xff\xda")) == (64, 64)


def test_frames_of_a_png_are_never_read_and_of_a_webp_limited_by_its_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = HEIGHT * (b"\0" + WIDTH * b"\1")
    assert image_size(BytesIO(png_of(WIDTH, HEIGHT, rows, frames=10**6))) == (WIDTH, HEIGHT)
    monkeypatch.setattr("bifocal.onnx.image_limits.MAX_FRAMES", 2)
    file, frames = (
        BytesIO(),
        [Image.new("RGB", (WIDTH, HEIGHT), (shade, 0, 0)) for shade in (0, 99, 200)],
    )
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:])
    with pytest.raises(LargeImageError, match="an animation of 3 frames, at most 2"):
        image_size(file)


def test_a_file_above_the_limit_of_bytes_is_not_parsed() -> None:
    with pytest.raises(LargeImageError, match="a file of 101 bytes, at most 100 are accepted"):
        image_size(BytesIO(101 * b"x"), max_bytes=100)


def test_few_bytes_cannot_declare_many_pixels() -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match="bytes are too few for 7000 x 7000 pixels"):
        decode_image(BytesIO(png_of(7_000, 7_000, b"")), None)
    assert time.process_time() - start < 0.1
    rows = 2_000 * (1 + 2_000) * b"\0"  # the densest file that is complete
    assert decode_image(BytesIO(png_of(2_000, 2_000, rows)), None).size == (2_000, 2_000)


@pytest.mark.parametrize("interlaced", [0, 1])
def test_a_png_that_ends_after_a_row_is_truncated(interlaced: int) -> None:
    buffer = BytesIO()
    Image.new("L", (WIDTH, HEIGHT)).save(buffer, "PNG")
    assert not np.asarray(decode_image(buffer, None)).any()  # all rows are there, and black
    complete = b"\0" * (HEIGHT * (1 + WIDTH))
    if interlaced:
        sides = [(3, 2), (3, 2), (6, 2), (6, 4), (12, 4), (12, 8), (24, 8)]
        complete = b"".join(rows * (b"\0" + columns * b"\1") for columns, rows in sides)
    decode_image(BytesIO(png_of(WIDTH, HEIGHT, complete, interlaced=interlaced)), None)
    with pytest.raises(ValueError, match="truncated"):
        decode_image(
            BytesIO(png_of(WIDTH, HEIGHT, complete[: -(1 + WIDTH)], interlaced=interlaced)), None
        )


def test_another_file_has_an_error_of_its_own() -> None:
    with pytest.raises(UnsupportedImageError, match="not an image in a supported format"):
        image_size(BytesIO(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"))
    with pytest.raises(ValueError, match="the file is empty"):
        image_size(BytesIO())


def test_limit_of_the_own_disk_is_raised_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    header = png_of(20_000, 15_000, depth=1, data=bytes(20_000 * 15_000 // 8))
    for value, expected in (("1000", 250_000_000), ("400000000", 400_000_000), ("0", 65_535**2)):
        monkeypatch.setenv("BIFOCAL_MAX_PIXELS", value)
        assert max_pixels() == expected
    assert image_size(BytesIO(header), 300_000_000) == (20_000, 15_000)
    with pytest.raises(
        LargeImageError,
        match=r"too large: 20000 x 15000 pixels, more than max_pixels 2.* the variable",
    ):
        image_size(BytesIO(header), 250_000_000)
    monkeypatch.setenv("BIFOCAL_MAX_PIXELS", "many")
    with pytest.raises(ValueError, match="BIFOCAL_MAX_PIXELS is 'many', expected a number"):
        max_pixels()


def test_a_photograph_of_108_megapixels_is_decoded_at_a_fraction() -> None:
    file = BytesIO()
    Image.new("L", (12_000, 9_000), 128).save(file, "JPEG", quality=30)
    image = decode_image(file, max_pixels(), 600)
    assert (image.size, image.getpixel((9, 9))) == ((1_500, 1_125), (128, 128, 128))


ENCODINGS = {
    "PNG": ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "I;16"),
    "TIFF": ("L", "RGB", "RGBA", "CMYK", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
    "GIF": ("L", "P"),
}


def loaded(image: Image.Image) -> Image.Image:
    image.load()
    return image


@given(data=st.data(), orientation=st.integers(0, 9), seed=st.integers(0, 99))
def test_an_image_of_pillow_has_the_pixels_of_its_file(data, orientation, seed):
    encoding = data.draw(st.sampled_from(sorted(ENCODINGS)))
    mode = data.draw(st.sampled_from(ENCODINGS[encoding]))
    noise = np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 4), dtype=np.uint8)
    if mode == "I;16":
        image = Image.fromarray(noise[..., 0].astype(np.uint16) * 257)
    elif mode == "PA":
        image = Image.fromarray(noise).quantize(8)  # a palette with transparency
    else:
        image = Image.fromarray(noise, "RGBA").convert(mode)
    exif = Image.Exif()
    exif[0x0112] = orientation
    profile = data.draw(st.sampled_from([None, b"damaged", SRGB, swapped_profile()]))
    options = {} if encoding == "GIF" else {"exif": exif, "icc_profile": profile}
    if mode in ("L", "P", "RGB") and encoding in ("PNG", "GIF") and data.draw(st.booleans()):
        options["transparency"] = (1, 2, 3) if mode == "RGB" else 3
    file = BytesIO()
    image.save(file, encoding, **options)
    expected = np.asarray(open_image(file.getvalue()))
    change = data.draw(st.sampled_from([lambda image: image, Image.Image.copy, loaded]))
    opened = change(Image.open(file))
    for _ in range(2):  # Pillow's image stays as it is
        decoded = open_image(opened)
        np.testing.assert_array_equal(np.asarray(decoded), expected)
    np.testing.assert_array_equal(np.asarray(open_image(decoded)), expected)


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (np.zeros((2, 2, 3)), TypeError, "an image of Pillow, got .*ndarray"),
        ("photo.jpg", TypeError, "got .*str"),
        (None, TypeError, "got .*NoneType"),
        (Image.new("RGB", (0, 3)), ValueError, "the image is empty"),
        (Image.new("F", (2, 2)), ValueError, "floating-point pixels"),
        (b"", ValueError, "the file is empty"),
    ],
)
def test_what_is_not_an_image_is_one_error(image, error, message):
    with pytest.raises(error, match=message):
        open_image(image)
