"""Heatmaps as pictures, and damaged files of a run."""

import base64
import os
import random
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bifocal.onnx.heatmaps import SIDE, peak
from bifocal.onnx.text.captions import tokenize
from bifocal.search.trained_model import TrainedModel
from bifocal.serving.service.description import languages
from bifocal.serving.service.models import RunSource, data_url


def test_the_opacity_of_a_heatmap_is_its_scaled_cube_and_its_point_the_peak() -> None:
    values = np.zeros((SIDE, SIDE), np.float32)
    values[8:24, 40:56] = 1
    assert np.allclose(peak(values), (48 / SIDE, 16 / SIDE), atol=1 / SIDE)
    header, _, encoded = data_url(3 * values + 2).partition(",")
    assert header == "data:image/png;base64"
    with Image.open(BytesIO(base64.b64decode(encoded))) as image:
        opacity = np.asarray(image.getchannel("A"))
    assert opacity[16, 48] == 255
    assert opacity[50, 10] == 0


PIPE = 14
"""Number of the contents of ``damages``; a named pipe and a missing file come after them."""


def damages(content: bytes, noise: random.Random) -> Iterator[bytes]:
    """Yield contents of a damaged file: cut, with a changed bit, or of another kind."""
    yield from (
        content[: noise.randrange(max(1, len(content)))],
        content[:-1],
        b"",
        noise.randbytes(200),
    )
    changed = bytearray(content)
    changed[noise.randrange(len(changed))] ^= 1 << noise.randrange(8)
    yield bytes(changed)
    yield from (b"{}", b"[]", b"null", b'"x"', b"1", b'{"a": 1}')
    for save, value in (
        (np.savez, np.zeros(3)),
        (np.save, np.array([1, "x"], object)),
        (np.save, np.zeros((3, 4))),
    ):
        file = BytesIO()
        save(file, value)
        yield file.getvalue()


@pytest.mark.parametrize("part", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_a_damaged_file_of_a_run_is_one_sentence(
    demo: TrainedModel, tmp_path: Path, part: str
) -> None:
    shutil.copytree(demo.directory / "artifacts", tmp_path / "artifacts")
    noise, artifacts = random.Random(0), tmp_path / "artifacts"
    for manifest in artifacts.rglob("manifest.json"):  # it would refuse each change by the sums
        manifest.unlink()
    cases = [
        (file, number)
        for file in sorted(artifacts.rglob("*"))
        if file.is_file()
        for number in range(PIPE + 2)
    ]
    messages = []
    for file, number in cases if part == "all" else noise.sample(cases, 12):
        original = file.read_bytes()
        file.unlink()
        if number == PIPE:
            os.mkfifo(file)
        elif number < PIPE:
            file.write_bytes(list(damages(original, noise))[number])
        try:
            RunSource(tmp_path).load().embedder.embed_sentences(["a red star"])
        except (ValueError, OSError) as error:
            messages.append(str(error))
        file.unlink(missing_ok=True)
        file.write_bytes(original)
    assert messages
    assert [message for message in messages if len(message) > 500 or "\n" in message] == []


CAPTIONS = {
    "english": "two dogs are running over the green grass of the garden together",
    "german": "zwei Hunde laufen zusammen über die grüne Wiese in einem großen Garten",
}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (CAPTIONS["english"], ["en"]),
        (CAPTIONS["german"], ["de"]),
        (" ".join(CAPTIONS.values()), ["de", "en"]),
        ("other", []),
        (None, []),  # subwords
    ],
)
def test_the_languages_of_a_model_are_those_of_its_words(
    known: str | None, expected: list[str]
) -> None:
    words = None if known is None else set(tokenize(known))
    captions = {f"{name}{row}": [text] for name, text in CAPTIONS.items() for row in range(20)}
    found = languages(
        captions,
        lambda text: None if words is None else {word: word in words for word in tokenize(text)},
    )
    assert sorted(found) == expected
