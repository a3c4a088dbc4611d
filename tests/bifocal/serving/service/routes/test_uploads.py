"""Uploads that are accepted and refused."""

from io import BytesIO

import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from bifocal.serving.limits import Limits
from bifocal.serving.service.routes.uploads import check_content_type, check_upload


def png(width: int, height: int) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), "gray").save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("body", "limits", "status"),
    [
        (b"", Limits(), 400),
        (b"no image", Limits(), 415),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", Limits(), 415),
        (png(8, 8)[:20], Limits(), 400),
        (png(20, 20), Limits(pixels=399), 413),
        (png(20, 20), Limits(image_bytes=10), 413),
    ],
)
def test_uploads_are_refused_by_their_class(body: bytes, limits: Limits, status: int) -> None:
    with pytest.raises(HTTPException) as refusal:
        check_upload(body, limits)
    assert refusal.value.status_code == status


def test_an_upload_within_the_limits_is_accepted() -> None:
    check_upload(png(20, 20), Limits(pixels=400))
    for kind in ("image/jpeg", "IMAGE/PNG; x=1", "application/octet-stream"):
        check_content_type(kind)
    with pytest.raises(HTTPException, match="415"):
        check_content_type("multipart/form-data; boundary=x")
