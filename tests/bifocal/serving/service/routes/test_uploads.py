"""Uploads that are accepted and refused."""

import base64
import struct
import zlib
from io import BytesIO

import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from bifocal.datasets.images import decode_image
from bifocal.serving.limits import Limits
from bifocal.serving.service.routes.uploads import check_content_type, check_upload


def png(width: int, height: int) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), "gray").save(file, "PNG")
    return file.getvalue()


def declared(width: int, height: int) -> bytes:
    """A PNG of few bytes whose header declares a size."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(b"")), (b"IEND", b""),
    ]  # fmt: skip
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("body", "limits", "status"),
    [
        (b"", Limits(), 400),
        (b"no image", Limits(), 415),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", Limits(), 415),
        (png(8, 8)[:20], Limits(), 400),
        (png(20, 20), Limits(pixels=399), 413),
        (png(20, 20), Limits(image_bytes=10), 413),
        (declared(1, 50_000_000), Limits(), 413),
        (declared(20, 1_000_000), Limits(), 413),
        (declared(70_000, 700), Limits(), 413),
        (png(1, 201), Limits(), 413),
    ],
)
def test_uploads_are_refused_by_their_class(body: bytes, limits: Limits, status: int) -> None:
    with pytest.raises(HTTPException) as refusal:
        check_upload(body, limits)
    assert refusal.value.status_code == status


def test_an_upload_within_the_limits_is_accepted() -> None:
    check_upload(png(20, 20), Limits(pixels=400))
    check_upload(png(1, 200), Limits())
    for kind in ("image/jpeg", "IMAGE/PNG; x=1", "application/octet-stream"):
        check_content_type(kind)
    with pytest.raises(HTTPException, match="415"):
        check_content_type("multipart/form-data; boundary=x")


@pytest.mark.parametrize("size", [(1, 50_000_000), (20, 1_000_000), (1, 201), (70_000, 700)])
def test_sides_are_limited_on_every_way_in(size: tuple[int, int]) -> None:
    file = declared(*size)
    with pytest.raises(ValueError, match="on a side"):
        decode_image(BytesIO(file), None)
    for image in (file, base64.b64encode(file).decode()):
        with pytest.raises(ValueError, match="on a side"):
            Limits().read_images({0: image})
