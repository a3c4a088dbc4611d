"""Parts of the service: phrases, rates, thumbnails, uploads, batches of sentences, deletions."""

import asyncio
import base64
import json
import os
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from starlette.exceptions import HTTPException

from bifocal.serving.limits import Limits
from bifocal.serving.service.live.batching import SentenceBatcher
from bifocal.serving.service.live.deletions import Deletions
from bifocal.serving.service.live.thumbnails import Thumbnails
from bifocal.serving.service.phrases import ARTICLES, MAX_PHRASES, SEPARATORS, Phrase, split_phrases
from bifocal.serving.service.routes.admission import RateLimit
from bifocal.serving.service.routes.uploads import check_content_type, check_upload
from bifocal.serving.service.served_model import SIDE, Heatmap


@settings(max_examples=50)
@given(
    st.text(max_size=20) | st.lists(st.sampled_from(["a", "red", "star", "on", "the", "sea", ",", "and"])).map(" ".join)
)
def test_phrases_are_parts_of_the_query_in_order_without_separators(query: str) -> None:
    phrases = split_phrases(query)
    assert 1 <= len(phrases) <= MAX_PHRASES
    assert all(query[phrase.start : phrase.end] == phrase.text for phrase in phrases)
    assert all(before.end <= after.start for before, after in pairwise(phrases))
    if phrases[0].text != query:
        words = [phrase.text.lower().split() for phrase in phrases]
        assert all(not SEPARATORS & set(group) and group[0] not in ARTICLES for group in words)


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.2, 5))
def test_a_client_never_exceeds_its_rate(pauses: list[float], rate: float) -> None:
    limit, moments = RateLimit(rate), np.cumsum(pauses)
    allowed = [moment for moment in moments if limit.wait("client", float(moment)) == 0]
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= max(1, 2 * rate) + rate * (allowed[last] - allowed[first]) + 1e-6
    assert limit.wait("another", float(moments[-1]) if len(moments) else 0.0) == 0


def photograph(path: Path) -> Path:
    """Write a JPEG with every kind of metadata, its top half red after the rotation by EXIF."""
    image = Image.new("RGB", (400, 300), "blue")
    image.paste("red", (0, 0, 200, 300))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    exif[0x010F] = "SECRET-CAMERA"
    exif.get_ifd(0x8825)[2] = (59.0, 54.0, 30.0)
    exif.get_ifd(0x8825)[29] = "SECRET-GPS"
    image.save(path, exif=exif, comment=b"SECRET-COMMENT", icc_profile=b"SECRET-PROFILE", xmp=b"<x>SECRET-XMP</x>")
    assert path.read_bytes().count(b"SECRET") == 5
    return path


def test_a_thumbnail_is_rotated_and_has_no_metadata(tmp_path: Path) -> None:
    made = Thumbnails().get("item", photograph(tmp_path / "photo.jpg"), 256)
    assert b"SECRET" not in made
    with Image.open(BytesIO(made)) as image:
        assert image.size == (192, 256)
        assert not image.getexif()
        assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
        red, _, blue = np.asarray(image.convert("RGB"), float)[:100].mean(axis=(0, 1))
        assert red > 200 > 50 > blue


def test_thumbnails_are_bounded_and_forgotten(tmp_path: Path) -> None:
    file = photograph(tmp_path / "photo.jpg")
    size = len(Thumbnails().get("a", file, 256))
    kept = Thumbnails(max_bytes=2 * size)
    for name in "abc":
        kept.get(name, file, 256)
    time = file.stat().st_mtime_ns
    file.write_bytes(b"no image")
    os.utime(file, ns=(time, time))
    assert len(kept.get("c", file, 256)) == size
    with pytest.raises(ValueError, match=r"photo\.jpg"):
        kept.get("a", file, 256)  # made room for c
    kept.drop("c")
    with pytest.raises(ValueError, match=r"photo\.jpg"):
        kept.get("c", file, 256)
    assert len(kept.get("b", file, 256)) == size
    file.unlink()
    with pytest.raises(ValueError, match="No such file"):
        kept.get("b", file, 256)


def test_a_thumbnail_above_the_pixel_limit_is_not_decoded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than max_pixels"):
        Thumbnails(max_pixels=1000).get("item", photograph(tmp_path / "photo.jpg"), 256)


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


def test_requests_that_wait_are_encoded_together_and_one_that_fails_fails_alone() -> None:
    batches: list[list[str]] = []

    def encode(sentences: list[str]) -> np.ndarray:
        batches.append(list(sentences))
        if "bad" in sentences:
            raise ValueError("bad is refused")
        return np.array([[len(sentence), ord(sentence[0])] for sentence in sentences], float)

    async def answer_all() -> list[object]:
        with ThreadPoolExecutor(1) as executor:
            batcher = SentenceBatcher(encode, executor, max_sentences=4)
            requests = [["one"], ["two", "three"], ["bad"], ["one"], ["four", "five", "six"]]
            return await asyncio.gather(*map(batcher.embed, requests), return_exceptions=True)

    first, second, third, fourth, fifth = asyncio.run(answer_all())
    assert first.tolist() == fourth.tolist() == [[3, ord("o")]]
    assert second.tolist() == [[3, ord("t")], [5, ord("t")]]
    assert fifth.tolist() == [[4, ord("f")], [4, ord("f")], [3, ord("s")]]
    assert isinstance(third, ValueError)
    assert ["one", "two", "three", "bad"] in batches  # encoded together before each was encoded alone


def test_deletions_survive_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "deleted.jsonl"
    Deletions(file).add('a "quoted"\nid')
    with file.open("a") as opened:
        opened.write('"cut of')
    kept = Deletions(file)
    assert list(kept) == ['a "quoted"\nid']
    kept.add("second")
    assert set(Deletions(file)) == {'a "quoted"\nid', "second"}


def test_the_opacity_of_a_heatmap_is_its_cube_and_its_point_the_peak() -> None:
    values = np.zeros((SIDE, SIDE), np.float32)
    values[8:24, 40:56] = 1
    heatmap = Heatmap(Phrase("star", 0, 4), values)
    assert np.allclose(heatmap.point, (48 / SIDE, 16 / SIDE), atol=1 / SIDE)
    header, _, encoded = heatmap.data_url().partition(",")
    assert header == "data:image/png;base64"
    with Image.open(BytesIO(base64.b64decode(encoded))) as image:
        opacity = np.asarray(image.getchannel("A"))
    assert opacity[16, 48] == 255
    assert opacity[50, 10] == 0
    assert json.dumps(heatmap.point)
