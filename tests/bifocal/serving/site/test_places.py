"""Places of phrases in a static copy: headless Chromium answers as the service, and a phrase can be
absent."""

import base64
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from bifocal.onnx.pointing import FOLDER
from bifocal.onnx.pointing.head import class_weights, phrase_map, standardize
from bifocal.onnx.pointing.phrases import split_phrases
from bifocal.search.trained_model import ONNX, TrainedModel
from bifocal.serving.service.models import Heatmap, SearchModel
from bifocal.serving.site.places import COMPONENTS, encode_image
from bifocal.serving.site.writer import write_site
from bifocal.text.transformer.tiny import write_tiny_transformer
from tests.bifocal.pointing_heads import DEFINITIONS, NAMES, write_head
from tests.bifocal.serving.page.steps import search
from tests.bifocal.serving.runs import write_run
from tests.bifocal.serving.site.static_copy import serve_files, write_copy
from tests.browser import open_tab, violations

SENTENCES = (
    "a red fox beside the cats, and fire engines",
    "Ünïcode 星 of the don't-know, its tabby_cat; a zebra",
    "👍 two foxes under three fire trucks",
    "!?",
)
ITEMS = ("test-00000", "test-00007", "test-00201")
EXPLAIN = (
    "([id, text]) => import('./page/api.js').then(api => api.explain(id, text, new "
    "AbortController().signal))"
)


@dataclass
class Copy:
    """A tab with a copy, its address, the served model and the copy's folder."""

    page: Page
    address: str
    served: SearchModel
    folder: Path
    place_bytes: int


@pytest.fixture(scope="module", params=["sentences", "words"])
def copy(
    request: pytest.FixtureRequest,
    demo: TrainedModel,
    browser: Browser,
    graph_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Copy]:
    """The copy of a run with a pointing head that compares phrases by a sentence encoder, or by
    words."""
    folder = tmp_path_factory.mktemp("places")
    texts = [name for names in NAMES for name in names] + DEFINITIONS
    path = (
        write_tiny_transformer(texts, folder=folder / "encoder")
        if request.param == "sentences"
        else None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(graph_cache))
        write_head(folder, path=path, slope=40.0, offset=44.0, threshold=0.5)
    write_run(demo, folder / "run")
    shutil.copytree(folder / "head", folder / "run" / ONNX / FOLDER)
    written, served, report = write_copy(folder / "run", folder)
    with (
        serve_files(written.parent) as host,
        open_tab(browser, f"{host}/copy/") as (page, problems),
    ):
        yield Copy(page, f"{host}/copy/", served, written, report.place_bytes)
        assert not problems


def opacity(address: str) -> np.ndarray:
    """Return the opacity (96, 96) of the PNG in a data URI, in [0, 1]."""
    with Image.open(BytesIO(base64.b64decode(address.partition(",")[2]))) as image:
        return np.asarray(image.convert("RGBA"))[:, :, 3] / 255


def places(served: SearchModel, item: str, sentence: str) -> list[Heatmap]:
    file = served.items.file(served.index.row(item))
    assert file is not None
    return served.heatmaps(file.read_bytes(), split_phrases(sentence))


def test_phrases_are_found_as_by_the_service(copy: Copy) -> None:
    refused = []
    for item in ITEMS:
        for sentence in SENTENCES:
            answer: Any = copy.page.evaluate(EXPLAIN, [item, sentence])
            expected = places(copy.served, item, sentence)
            assert [(p["text"], p["start"], p["end"]) for p in answer["phrases"]] == [
                h.phrase for h in expected
            ]
            for found, wanted in zip(answer["phrases"], expected, strict=True):
                assert found["probability"] == pytest.approx(wanted.probability, abs=0.03)
                assert (
                    (found["point"] is not None)
                    == (found["probability"] >= 0.5)
                    == (found["heatmap"] is not None)
                )
                refused.append(found["point"] is None)
                if found["point"] is not None:
                    column, row = (int(96 * value) for value in found["point"])
                    assert wanted.values[row, column] > 0.98  # several places can be nearly as high
                    assert (
                        np.abs(opacity(found["heatmap"]) - opacity(wanted.data_url())).mean() < 0.05
                    )
    assert {True, False} == set(refused)


def test_the_dialog_shows_a_guess_or_no_point(copy: Copy) -> None:
    page = copy.page
    page.goto("about:blank")
    page.goto(copy.address)
    search(page, SENTENCES[0])
    page.locator(".card").first.click()
    expect(page.locator("#sentence button")).to_have_count(3)
    expect(page.locator("#where")).not_to_be_empty()
    shown = page.locator("#sentence button:not(.absent)").count()
    assert page.locator("#heatmaps .ring").count() == shown
    for number in range(3):
        button = page.locator("#sentence button").nth(number)
        button.click()
        absent = "absent" in (button.get_attribute("class") or "")
        expect(page.locator("#where")).to_contain_text("Probably no" if absent else "Guess:")
        button.click()
    assert not violations(page)


@pytest.mark.parametrize(
    ("probability", "start"), [(0.31, "Perhaps no “carrot”"), (0.5, "Guess:"), (None, "Guess:")]
)
def test_a_phrase_that_is_rather_absent_is_not_called_a_guess(
    copy: Copy, probability: float | None, start: str
) -> None:
    script = "phrase => import('./page/places.js').then(places => places.describe(phrase))"
    sentence = copy.page.evaluate(
        script, {"text": "carrot", "point": [0.52, 0.45], "probability": probability}
    )
    assert sentence.startswith(start)
    assert "52 % from the left and 45 % from the top." in sentence


def test_a_copy_without_places_says_so(copy: Copy, tmp_path: Path, browser: Browser) -> None:
    report = write_site(
        copy.served, copy.folder.parents[1] / "run" / ONNX, tmp_path / "copy", places=False
    )
    assert report.place_bytes == 0
    assert not list((tmp_path / "copy").rglob("places"))
    with serve_files(tmp_path) as host, open_tab(browser, f"{host}/copy/") as (page, _):
        script = f"pair => ({EXPLAIN})(pair).catch(error => `${{error.status}} ${{error.message}}`)"
        assert (
            page.evaluate(script, [ITEMS[0], "a fox"])
            == "409 this copy cannot show where a phrase is"
        )
        assert not page.evaluate("import('./page/api.js').then(api => api.info())")["explains"]


def test_the_files_of_places(copy: Copy) -> None:
    (folder,) = copy.folder.glob("data/*/places")
    numbers = [file for file in folder.iterdir() if file.stem.isdigit()]
    assert len(numbers) == 254
    assert {file.stat().st_size for file in numbers} == {copy.place_bytes}
    assert copy.place_bytes == 4 * (3 + 3) + 3 * (3 + 9 + 4)  # three classes, cells of two sizes


def test_components_give_the_maps_of_phrases() -> None:
    rng = np.random.default_rng(0)
    shapes, classes = ((6, 5), (7, 8)), 200
    directions, offsets = rng.normal(size=(20, classes)), rng.normal(size=classes)
    cells = [rng.normal(size=(*shape, 20)) @ directions + offsets for shape in shapes]
    presence, weights = rng.random(classes), class_weights(rng.normal(size=classes), 0.3)
    content = encode_image(cells, presence)
    numbers = np.frombuffer(content, "<f4", classes + COMPONENTS)
    stored = np.frombuffer(content, np.int8, offset=4 * len(numbers))
    of_classes, of_cells = np.split(stored, [COMPONENTS * classes])
    products = of_classes.reshape(COMPONENTS, -1) @ (weights - weights.mean()) * numbers[classes:]
    found = np.split(products @ of_cells.reshape(COMPONENTS, -1), [30])
    for values, part in zip(cells, found, strict=True):
        expected = standardize(phrase_map(values, weights))
        assert standardize(part.reshape(values.shape[:2])) == pytest.approx(expected, abs=0.1)
    assert numbers[:classes] == pytest.approx(presence)
