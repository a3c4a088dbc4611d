"""The page in headless Chromium: search, heatmaps, upload, words, filters, paging, permalinks, keyboard, axe."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from bifocal.search.trained_model import TrainedModel
from tests.bifocal.serving.page.steps import check_input_before_the_scripts, ids, search, violations
from tests.bifocal.serving.server import Server
from tests.browser import open_tab

QUERY = "a red star on sand with a blue moon"
PICTURES = os.environ.get("BIFOCAL_PAGE_PICTURES")
"""Folder that the test writes screenshots for the documentation to."""


@contextmanager
def open_page(browser: Browser, server: Server) -> Iterator[tuple[Page, list[str]]]:
    """Yield a tab with the page, and a list of console errors and requests to other hosts."""
    address, window = f"http://127.0.0.1:{server.port}/", {"width": 1200, "height": 850}
    with open_tab(browser, address, viewport=window) as (opened, problems):
        expect(opened.locator("#examples button")).to_have_count(6)
        yield opened, problems


@pytest.fixture(scope="module")
def tab(browser: Browser, server: Server) -> Iterator[tuple[Page, list[str]]]:
    """The tab of the tests, see ``open_page``."""
    with open_page(browser, server) as opened:
        yield opened


@pytest.fixture
def page(tab: tuple[Page, list[str]], server: Server) -> Iterator[Page]:
    """The tab with an empty query; the test fails if the page reports an error or calls another host."""
    opened, problems = tab
    opened.goto("about:blank")
    opened.goto(f"http://127.0.0.1:{server.port}/")
    expect(opened.locator("#examples button")).to_have_count(6)
    yield opened
    opened.unroute_all()
    assert not problems


def take_picture(page: Page, name: str) -> None:
    if PICTURES:
        expect(page.locator(".card img:not([src])")).to_have_count(0)
        page.wait_for_timeout(500)
        page.screenshot(path=Path(PICTURES) / f"page_{name}.jpg", quality=85)


def test_search_shows_results_and_where_the_phrases_are(page: Page, server: Server) -> None:
    expect(page.locator("#about")).to_contain_text("The model reads English.")
    assert not violations(page)
    search(page, QUERY)
    answer = server.search(text=QUERY)
    assert ids(page) == [result["id"] for result in answer["results"]]
    expect(page.locator(".card").first).to_contain_text(f"Score {answer['results'][0]['score']:.2f}")
    assert not violations(page)
    take_picture(page, "results")
    page.locator(".card").first.click()
    phrases = page.locator("#sentence button")
    expect(phrases).to_have_text(["red star", "sand", "blue moon"])
    expect(page.locator("#sentence")).to_have_text(QUERY)
    assert not violations(page)
    take_picture(page, "where")
    phrases.first.click()
    explained = server.post("explain", {"id": answer["results"][0]["id"], "text": QUERY})["phrases"][0]
    x, y = (round(100 * value) for value in explained["point"])
    expect(page.locator("#where")).to_contain_text(f"“red star” is around {x} % from the left and {y} % from the top.")
    expect(page.locator("#heatmaps > div:not([hidden])")).to_have_count(1)
    mask = page.locator(".heat").first.evaluate("element => element.style.maskImage")
    assert explained["heatmap"] in mask


def test_an_address_is_a_permalink(page: Page, browser: Browser) -> None:
    search(page, QUERY)
    page.locator(".card").nth(2).click()
    expect(page.locator("#sentence button").first).to_be_visible()
    title, former = page.text_content("#detail-title"), ids(page)
    phone = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    with phone as context:
        other = context.new_page()
        other.goto(page.url)
        expect(other.locator("#detail-title")).to_have_text(str(title), timeout=60_000)
        expect(other.locator("#sentence button").first).to_be_visible(timeout=60_000)
        assert not violations(other)
        take_picture(other, "phone")
        assert other.evaluate("document.documentElement.scrollWidth") <= 390
        other.keyboard.press("Escape")
        assert ids(other) == former
        assert not violations(other)
    page.go_back()
    expect(page.locator("#detail")).to_be_hidden()


def test_everything_works_by_keyboard(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("a red star")
    page.keyboard.press("Enter")
    expect(page.locator(".card")).to_have_count(24)
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('card')"):
            break
    first, second = ids(page)[:2]
    page.keyboard.press("Enter")
    expect(page.locator("#sentence button")).to_have_text(["red star"])
    page.keyboard.press("ArrowRight")
    page.wait_for_url(f"**item={second}**")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(f"**item={first}**")
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    assert page.evaluate("document.activeElement.dataset.id") == first
    page.focus("#more")
    page.keyboard.press("Enter")
    expect(page.locator(".card")).to_have_count(48)
    assert page.evaluate("document.activeElement.dataset.id") == ids(page)[24]
    page.focus("#word")
    page.keyboard.type("snow")
    page.keyboard.press("Enter")
    expect(page.locator("#words button")).to_have_text(["+ snow ×"])
    page.focus("#words button")
    page.keyboard.press("Enter")
    expect(page.locator("#words button")).to_have_count(0)


def test_an_image_with_words_added_and_taken_away(page: Page, server: Server, demo: TrainedModel) -> None:
    path = Path(str(demo.collection.image(30)))
    page.set_input_files("#file", path)
    expect(page.locator("#image-name")).to_have_text(f"Image: {path.name}")
    expect(page.locator(".card").first).to_have_attribute("data-id", "test-00030")
    page.fill("#word", "snow")
    page.click("#minus")
    expect(page.locator("#words button")).to_have_text(["− snow ×"])
    expect(page.locator("#status")).to_contain_text("images shown")
    address = "/api/v1/search/image?k=24&minus=snow"
    body = server.request("POST", address, path.read_bytes(), {"content-type": "image/jpeg"})[1]
    assert ids(page) == [result["id"] for result in json.loads(body)["results"]]
    page.click("#remove-image")
    expect(page.locator("#image-query")).to_be_hidden()


def test_filters_paging_and_the_empty_state(page: Page) -> None:
    page.click("#filters summary")
    page.check("input[name=odd]")
    page.fill("input[name=max]", "39")
    page.press("input[name=max]", "Tab")
    search(page, "a star")
    expect(page.locator(".card")).to_have_count(20)
    assert all(int(item_id[-2:]) % 2 and int(item_id[-5:]) < 40 for item_id in ids(page))
    expect(page.locator("#more")).to_be_hidden()
    assert not violations(page)
    page.fill("input[name=max]", "-1")
    page.press("input[name=max]", "Tab")
    expect(page.locator("#status")).to_contain_text("Nothing found")
    assert ids(page) == []


def test_words_parts_of_images_and_groups(page: Page, server: Server) -> None:
    search(page, "even star")
    by_vector = ids(page)
    page.select_option("#mode", "hybrid")
    page.wait_for_url("**mode=hybrid")
    expected = server.search(text="even star", mode="hybrid")["results"]
    expect(page.locator(".card").first).to_have_attribute("data-id", expected[0]["id"])
    assert ids(page) == [result["id"] for result in expected] != by_vector
    page.select_option("#mode", "regions")
    search(page, "a red star")
    (best,) = server.search(text="a red star", mode="regions", k=1)["results"]
    expect(page.locator(".card").first).to_have_attribute("data-id", best["id"])
    expect(page.locator(".card .region")).to_have_count(24)
    assert not violations(page)
    take_picture(page, "regions")
    page.locator(".card").first.click()
    x0, y0, x1, y1 = best["box"]
    expect(page.locator("#region")).to_contain_text(f"{round(50 * (x0 + x1))} % from the left")
    expect(page.locator("#picture img")).to_have_js_property("complete", True)
    box, image = (page.locator(f"#picture {name}").bounding_box() for name in (".region", "img"))
    assert box["x"] + box["width"] / 2 == pytest.approx(image["x"] + image["width"] * (x0 + x1) / 2, abs=1)
    assert box["y"] + box["height"] / 2 == pytest.approx(image["y"] + image["height"] * (y0 + y1) / 2, abs=1)
    # The square of a card shows the central half of an image of 200 x 100 pixels.
    size, script = "{naturalWidth: 200, naturalHeight: 100}", 'const {regionBox} = await import("/page/detail.js");'
    style = page.evaluate(f"async () => {{ {script} return regionBox([0.25, 0, 0.5, 1], {size}).style.cssText; }}")
    assert style == "left: 0%; top: 0%; width: 50%; height: 100%;"
    page.keyboard.press("Escape")
    page.select_option("#group", "parity")
    expect(page.locator(".card")).to_have_count(2)
    page.fill("#word", "snow")
    page.click("#plus")
    expect(page.locator("#mode")).to_be_disabled()
    expect(page.locator(".card .region")).to_have_count(0)
    expect(page.locator("#problem")).to_be_empty()


def test_a_click_is_sent_if_the_service_asks_for_it_and_the_tab_has_one_name(page: Page) -> None:
    names: list[str | None] = []

    def answer(route: Route) -> None:
        found = route.fetch()
        names.append(route.request.headers.get("bifocal-client"))
        first = not json.loads(route.request.post_data or "")["offset"]
        route.fulfill(response=found, json=found.json() | {"answer": "an id" if first else None})

    sent: list[Any] = []
    page.route("**/api/v1/search", answer)
    page.route("**/api/v1/click", lambda route: (sent.append(route.request.post_data_json), route.fulfill(status=204)))
    search(page, QUERY)
    page.click("#more")
    expect(page.locator(".card")).to_have_count(48)
    for number in (2, 30):  # the second page has no answer that counts
        page.locator(".card").nth(number).click()
        expect(page.locator("#sentence button").first).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#detail")).to_be_hidden()
    assert sent == [{"answer": "an id", "item": ids(page)[2]}]
    assert len(set(names)) == 1
    assert len(names[0] or "") == 24


def test_errors_are_shown_with_their_reason(browser: Browser, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "letter.png"
    file.write_text("no image")
    with open_page(browser, server) as (page, problems):
        page.set_input_files("#file", file)
        expect(page.locator("#problem")).to_contain_text("This file is not an image that can be read: not an image")
        assert not violations(page)
        assert all("415" in problem for problem in problems)  # Chromium itself reports the status
        page.click("#remove-image")
        expect(page.locator("#problem")).to_be_empty()
        page.route("**/api/v1/search", lambda route: route.abort())
        page.fill("#query", "a star")
        page.press("#query", "Enter")
        expect(page.locator("#problem")).to_have_text("The service cannot be reached. Try again.")


def test_input_before_the_scripts_are_loaded_is_kept_and_searched(browser: Browser, server: Server) -> None:
    check_input_before_the_scripts(browser, f"http://127.0.0.1:{server.port}/")
