"""Image files that clients send: accepted, or refused by their kind, wherever they come in."""

import base64
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient

from bifocal.onnx.images import image_formats
from bifocal.onnx.limits import Limits
from bifocal.serving.service import turns
from bifocal.serving.service.app import create_app
from bifocal.serving.service.models import SearchRelease
from bifocal.serving.service.pictures import Decoders
from bifocal.serving.service.settings import Settings
from tests.bifocal.image_files import with_scans
from tests.bifocal.serving.runs import LoadedSource

SEARCH, INFER = "/api/v1/search/image", "/v2/models/bifocal/infer"


def encoded(width: int, height: int, form: str = "PNG") -> bytes:
    file = BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(file, form)
    return file.getvalue()


def declared(width: int, height: int) -> bytes:
    """A PNG of few bytes whose header declares a size."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.fixture(scope="module")
def client(served: SearchRelease) -> Iterator[TestClient]:
    limits = Limits(pixels=90_000, total_pixels=100_000, decode_seconds=60)
    with TestClient(
        create_app(LoadedSource(served), Settings(limits=limits)), base_url="http://localhost"
    ) as opened:
        yield opened


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "empty"),
        (b"no image", 415, "not an image in a supported format"),
        (
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
            415,
            "not an image in a supported format",
        ),
        (encoded(8, 8)[:20], 400, "cannot be decoded"),
        (encoded(64, 64)[:-60], 400, "truncated"),
        (encoded(64, 64, "JPEG")[:-200], 400, "truncated"),
        (encoded(300, 301), 413, "too large: 300 x 301 pixels, more than max_pixels 90000"),
        (declared(1, 50_000_000), 413, "on a side"),
        (declared(20, 1_000_000), 413, "on a side"),
        (declared(70_000, 700), 413, "on a side"),
        (encoded(1, 201), 413, "on a side"),
        *(
            (encoded(9, 9, form), 415, "supported format (JPEG, PNG")
            for form in ("BMP", "TIFF", "PPM", "JPEG2000")
        ),
    ],
)
def test_files_are_refused_by_their_kind_on_every_route(
    client: TestClient, body: bytes, status: int, reason: str
) -> None:
    answer = client.post(SEARCH, content=body, headers={"content-type": "image/png"})
    assert (answer.status_code, reason in answer.json()["error"]) == (status, True), answer.json()
    content = {
        "name": "image",
        "shape": [1],
        "datatype": "BYTES",
        "data": [base64.b64encode(body).decode()],
    }
    answer = client.post(INFER, json={"inputs": [content]})
    assert answer.status_code == status
    assert reason in answer.json()["error"]
    assert answer.json()["error"].startswith("row 0: ")


def test_files_within_the_limits_are_accepted(client: TestClient) -> None:
    for kind in ("image/jpeg", "IMAGE/PNG; x=1", "application/octet-stream"):
        assert (
            client.post(
                SEARCH, content=encoded(300, 300), headers={"content-type": kind}
            ).status_code
            == 200
        )
    for form in set(image_formats()) & {"JPEG", "PNG", "GIF", "WEBP", "AVIF"}:
        body, kind = encoded(30, 20, form), {"content-type": "image/png"}
        assert client.post(SEARCH, content=body, headers=kind).status_code == 200
    answer = client.post(
        SEARCH, content=encoded(1, 200), headers={"content-type": "multipart/form-data; boundary=x"}
    )
    assert answer.status_code == 415


def test_a_large_file_waits_for_other_large_files_only(
    served: SearchRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scans of a JPEG count, which take its time."""
    few, lanes = BytesIO(), list[tuple[Decoders, str]]()
    Image.linear_gradient("L").resize((2000, 3000)).convert("RGB").save(few, "JPEG")
    many = with_scans(progressive(few.getvalue()), 40)
    run = Decoders.run

    async def noted(decoders: Decoders, decode: Any, *arguments: Any) -> Any:
        lanes.append((decoders, decode.__name__))
        return await run(decoders, decode, *arguments)

    monkeypatch.setattr(Decoders, "run", noted)
    with TestClient(
        create_app(LoadedSource(served), Settings()), base_url="http://localhost"
    ) as opened:
        for body in (few.getvalue(), many, encoded(5000, 5000)):
            answer = opened.post(SEARCH, content=body, headers={"content-type": "image/png"})
            assert answer.status_code == 200
    first, second, third, fourth, fifth = lanes
    assert [name for _, name in lanes] == ["decode_quick"] * 2 + [
        "decode_pixels",
        "decode_quick",
        "decode_pixels",
    ]
    assert first[0] is second[0] is fourth[0]
    assert third[0] is fifth[0] is not first[0]


def progressive(jpeg: bytes) -> bytes:
    file = BytesIO()
    Image.open(BytesIO(jpeg)).save(file, "JPEG", progressive=True)
    return file.getvalue()


def test_the_images_of_a_request_have_a_limit_of_processor_time(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [base64.b64encode(encoded(side, side)).decode() for side in (300, 100)]
    content = {"name": "image", "shape": [2], "datatype": "BYTES", "data": data}
    assert client.post(INFER, json={"inputs": [content]}).status_code == 200
    monkeypatch.setattr(turns, "MOST_SECONDS", 0)
    answer = client.post(INFER, json={"inputs": [content]})
    assert answer.status_code == 413
    assert "more than 0 s of processor time: send fewer" in answer.json()["error"]


def test_all_images_of_a_request_have_a_limit_of_pixels(client: TestClient) -> None:
    data = [base64.b64encode(encoded(side, side)).decode() for side in (300, 100, 20)]
    content = {"name": "image", "shape": [2], "datatype": "BYTES", "data": data[:2]}
    assert client.post(INFER, json={"inputs": [content]}).status_code == 200
    answer = client.post(INFER, json={"inputs": [content | {"shape": [3], "data": data}]})
    assert answer.json() == {
        "error": "the images up to row 2 have 100400 pixels, at most 100000 are accepted "
        "(BIFOCAL_MAX_TOTAL_PIXELS of the server)"
    }
