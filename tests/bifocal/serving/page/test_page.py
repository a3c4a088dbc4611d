"""The page in headless Chromium: search, heatmaps, upload, words, filters, paging, permalinks, keyboard, axe."""

import base64
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from bifocal.search.trained_model import TrainedModel
from tests.bifocal.serving.page.steps import add_word, check_input_before_the_scripts, ids, search, violations
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
    search(page, QUERY)
    answer = server.search(text=QUERY, k=60)
    assert ids(page) == [result["id"] for result in answer["results"]][: len(ids(page))]
    expect(page).to_have_title(f"{QUERY} – Bifocal")
    assert not violations(page)
    take_picture(page, "results")
    page.locator(".card").first.click()
    phrases = page.locator("#sentence button")
    expect(phrases).to_have_text(["red star", "sand", "blue moon"])
    expect(page.locator("#sentence")).to_have_text(QUERY)
    expect(page.locator("#facts")).to_contain_text(f"score{answer['results'][0]['score']:.2f}")
    assert not violations(page)
    take_picture(page, "where")
    phrases.first.click()
    explained = server.post("explain", {"id": answer["results"][0]["id"], "text": QUERY})["phrases"][0]
    x, y = (round(100 * value) for value in explained["point"])
    expect(page.locator("#where")).to_contain_text(f"“red star” is around {x} % from the left and {y} % from the top.")
    expect(page.locator("#heatmaps > div:not([hidden])")).to_have_count(1)
    mask = page.locator(".heat").first.evaluate("element => element.style.maskImage")
    assert explained["heatmap"] in mask
    page.click("#heat")
    expect(page.locator("#heat")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#heatmaps")).to_be_hidden()
    page.click("#heat")
    expect(page.locator("#heatmaps")).to_be_visible()


def test_the_page_opens_with_the_collection_and_its_end_is_reached_by_scrolling(page: Page, server: Server) -> None:
    expect(page.locator("#status")).to_have_text("256 images.")
    expect(page.locator("#query")).to_be_focused()
    assert not violations(page)
    take_picture(page, "gallery")
    newest = server.post("browse", {"k": 100})["results"]
    shown = ids(page)
    assert shown == [item["id"] for item in newest][: len(shown)]
    places = "() => [...document.querySelectorAll('#results li')].map((item) => [item.ariaPosInSet, item.style.top])"
    before = page.evaluate(places)
    while ids(page)[-1] != "test-00000":
        page.mouse.wheel(0, 1000)
        page.wait_for_timeout(20)
    assert len(ids(page)) < 200  # pictures far from the screen are not in the document
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator(".card").first).to_have_attribute("data-id", shown[0])
    assert page.evaluate(places)[: len(before)] == before


def test_rows_fill_the_width_and_keep_the_shapes(page: Page) -> None:
    shapes = [1.5, 0.75, 1, 1.78, 0.4, 3.2, 1, 1, 1.33, 0.6, 2]
    script = "async ([shapes, complete]) => (await import('./page/gallery.js')).layOut(shapes, 700, 200, complete)"
    rows: Any = page.evaluate(script, [shapes, True])
    assert [number for row in rows for number in range(row["first"], row["end"])] == list(range(len(shapes)))
    for number, row in enumerate(rows):
        widths = [after - left - 6 for left, after in pairwise(row["lefts"])]
        assert row["height"] <= 200
        assert row["top"] == sum(former["height"] + 6 for former in rows[:number])
        for width, shape in zip(widths, shapes[row["first"] : row["end"]], strict=True):
            assert width == pytest.approx(shape * row["height"], abs=1.5 + 0.5 * shapes[0] * len(widths))
        assert row["lefts"][-1] == 706 or row is rows[-1]
    assert page.evaluate(script, [shapes, False]) == [row for row in rows if row["lefts"][-1] == 706]


def test_hostile_names_and_captions_stay_text(page: Page) -> None:
    evil = "<img src=x onerror=alert(1)>\"'"

    def answer(route: Route) -> None:
        found = route.fetch().json()
        for item in found["results"]:
            item.update(
                id=f"{evil}{item['id']}", captions=[evil, evil], name=evil, metadata={evil: evil, "folder": evil}
            )
        route.fulfill(json=found)

    page.route("**/api/v1/search", answer)
    page.route("**/api/v1/thumbnail*", lambda route: route.fulfill(status=204))
    page.route("**/api/v1/item*", lambda route: route.fulfill(json={"bytes": 1}))
    page.route("**/api/v1/explain", lambda route: route.fulfill(json={"phrases": []}))
    search(page, evil)
    page.locator(".card").first.click()
    expect(page.locator("#detail-title")).to_have_text(evil)
    expect(page.locator("#facts")).to_contain_text(evil)
    assert page.locator("img[src=x]").count() == 0
    assert page.url.endswith(quote_plus(ids(page)[0], safe="*"))
    page.keyboard.press("Escape")


def test_files_facts_and_links_of_an_item(page: Page, server: Server, demo: TrainedModel) -> None:
    page.goto(f"{page.url.partition('#')[0]}#item=test-00042")
    path = Path(str(demo.collection.image(42)))
    size = -(-path.stat().st_size // 1000)
    expect(page.locator("#facts")).to_contain_text(f"file{path.name}size128 × 128 pixels, {size} KBnumber42parityeven")
    link = page.locator("#original").get_attribute("href") or ""
    assert server.get(f"/{link}")[1] == path.read_bytes()
    with page.expect_download() as download:
        page.click("#download")
    assert (download.value.suggested_filename, download.value.path().read_bytes()) == (path.name, path.read_bytes())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy-image")
    expect(page.locator("#told")).to_have_text("Picture copied.")
    kinds = "async () => (await navigator.clipboard.read()).flatMap((item) => item.types)"
    assert page.evaluate(kinds) == ["image/png"]
    page.click("#copy")
    expect(page.locator("#told")).to_have_text("Link copied.")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    page.click("#similar")
    page.wait_for_url("**#like=test-00042")
    expect(page.locator("#detail")).to_be_hidden()
    assert ids(page)[:3] == [result["id"] for result in server.search(like="test-00042", k=3)["results"]]
    expect(page.locator("#chips button")).to_contain_text("Images like test-00042")


def test_controls_take_a_fifth_of_the_screen_of_a_phone(browser: Browser, server: Server) -> None:
    address, phone = f"http://127.0.0.1:{server.port}/", {"width": 390, "height": 844}
    with open_tab(browser, address, viewport=phone, has_touch=True) as (page, problems):
        for query in ("", QUERY):
            if query:
                search(page, query)
            first = page.locator(".card").first.bounding_box()
            assert first
            assert first["y"] <= 844 / 5
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator(".card").first.tap()
        expect(page.locator("#detail-title")).to_be_visible()
        first_title, touch = (
            page.title(),
            "([type, x]) => document.querySelector('#stage').dispatchEvent(new TouchEvent(",
        )
        touch += (
            "type, {bubbles: true, ...Object.fromEntries(['touches', 'changedTouches'].map((name) => [name, [new Touch("
        )
        touch += "{identifier: 1, target: document.body, clientX: x, clientY: 9})]]))}))"
        for type_, x in (("touchstart", 300), ("touchend", 100)):
            page.evaluate(touch, [type_, x])
        expect(page).not_to_have_title(first_title)
        assert not problems


def test_an_address_is_a_permalink(page: Page, browser: Browser) -> None:
    search(page, QUERY)
    page.locator(".card").nth(2).click()
    expect(page.locator("#sentence button").first).to_be_visible()
    title, former = page.text_content("#detail-title"), ids(page)[:10]
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
        assert ids(other)[:10] == former
        assert not violations(other)
    page.go_back()
    expect(page.locator("#detail")).to_be_hidden()


def test_everything_works_by_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")  # away from the search field
    page.keyboard.press("/")
    page.keyboard.type("a red star")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("Best first")
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
    focused = "document.activeElement.parentElement.ariaPosInSet"
    assert page.evaluate(focused) == "1"
    expect(page).to_have_url(re.compile("#text=a[+]red[+]star$"))
    columns = page.evaluate("document.querySelectorAll(`#results li[style*='top: 0px']`).length")
    for key, place in (("ArrowRight", 2), ("ArrowDown", 2 + columns), ("ArrowUp", 2), ("Home", 1), ("End", 60)):
        page.keyboard.press(key)
        assert page.evaluate(focused) == str(place), key
    expect(page.locator("#results li").last).not_to_have_attribute("aria-posinset", "60")  # the next page follows
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == "61"
    page.focus("#options summary")
    page.keyboard.press("Enter")
    page.focus("#word")
    page.keyboard.type("snow")
    page.keyboard.press("Enter")
    expect(page.locator("#chips button")).to_contain_text(["+ snow"])
    page.focus("#chips button")
    page.keyboard.press("Enter")
    expect(page.locator("#chips button")).to_have_count(0)
    expect(page.locator("#query")).to_be_focused()


def test_an_image_with_words_added_and_taken_away(page: Page, server: Server, demo: TrainedModel) -> None:
    path = Path(str(demo.collection.image(30)))
    page.set_input_files("#file", path)
    expect(page.locator("#chips button")).to_contain_text([f"Image: {path.name}"])
    expect(page.locator(".card").first).to_have_attribute("data-id", "test-00030")
    expect(page).to_have_title(f"{path.name} – Bifocal")
    add_word(page, "snow", "#minus")
    expect(page.locator("#chips button")).to_contain_text([f"Image: {path.name}", "− snow"])
    address = "/api/v1/search/image?k=60&minus=snow"
    body = server.request("POST", address, path.read_bytes(), {"content-type": "image/jpeg"})[1]
    expected = [result["id"] for result in json.loads(body)["results"]]
    expect(page.locator(".card").nth(5)).to_have_attribute("data-id", expected[5])
    assert ids(page) == expected[: len(ids(page))]
    page.locator("#chips button").first.click()
    expect(page.locator("#chips button")).to_contain_text(["− snow"])
    expect(page.locator("#status")).to_have_text("256 images.")


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_a_picture_is_dropped_or_pasted(page: Page, demo: TrainedModel, event: str) -> None:
    picture = base64.b64encode(Path(str(demo.collection.image(31))).read_bytes()).decode()
    page.evaluate(
        """async ([event, picture]) => {
            const data = new DataTransfer();
            const bytes = Uint8Array.from(atob(picture), (letter) => letter.charCodeAt(0));
            data.items.add(new File([bytes], "mine.jpg", {type: "image/jpeg"}));
            const made = event === "drop" ? new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true})
                : new ClipboardEvent("paste", {clipboardData: data, bubbles: true});
            document.body.dispatchEvent(made);
        }""",
        [event, picture],
    )
    expect(page.locator("#chips button")).to_contain_text(["Image: mine.jpg"])
    expect(page.locator(".card").first).to_have_attribute("data-id", "test-00031")


def test_filters_and_the_empty_state(page: Page) -> None:
    page.click("#options summary")
    page.check("input[name=odd]")
    expect(page.locator("#status")).to_have_text("128 images.")  # without a query, too
    page.fill("input[name=max]", "39")
    page.press("input[name=max]", "Tab")
    expect(page.locator("#status")).to_have_text("20 images.")
    assert not violations(page)
    search(page, "a star")
    expect(page.locator(".card")).to_have_count(20)
    assert all(int(item_id[-2:]) % 2 and int(item_id[-5:]) < 40 for item_id in ids(page))
    expect(page.locator("#chips button")).to_contain_text(["number: ≤ 39", "parity: odd"])
    page.click("#options summary")
    page.fill("input[name=max]", "-1")
    page.press("input[name=max]", "Tab")
    expect(page.locator("#status")).to_contain_text("Nothing found")
    assert ids(page) == []


def test_words_parts_of_images_and_groups(page: Page, server: Server) -> None:
    search(page, "even star")
    by_vector = ids(page)
    page.click("#options summary")
    page.select_option("#mode", "hybrid")
    page.wait_for_url("**mode=hybrid")
    expected = server.search(text="even star", mode="hybrid", k=60)["results"]
    expect(page.locator(".card").first).to_have_attribute("data-id", expected[0]["id"])
    assert by_vector != ids(page) == [result["id"] for result in expected][: len(ids(page))]
    page.select_option("#mode", "regions")
    search(page, "a red star")
    (best,) = server.search(text="a red star", mode="regions", k=1)["results"]
    expect(page.locator(".card").first).to_have_attribute("data-id", best["id"])
    assert page.locator(".card .region").count() == len(ids(page))
    assert not violations(page)
    take_picture(page, "regions")
    for frame in (".card", "#picture"):
        if frame == "#picture":
            page.locator(".card").first.click()
        x0, y0, x1, y1 = best["box"]
        expect(page.locator(f"{frame} img").first).to_have_js_property("complete", True)
        box, image = (page.locator(f"{frame} {name}").first.bounding_box() for name in (".region", "img"))
        assert box["x"] + box["width"] / 2 == pytest.approx(image["x"] + image["width"] * (x0 + x1) / 2, abs=1)
        assert box["y"] + box["height"] / 2 == pytest.approx(image["y"] + image["height"] * (y0 + y1) / 2, abs=1)
    expect(page.locator("#region")).to_contain_text(f"{round(50 * (x0 + x1))} % from the left")
    # A card of half the width shows the central half of an image.
    script = 'const {regionBox} = await import("/page/detail.js");'
    style = page.evaluate(f"async () => {{ {script} return regionBox([0.25, 0, 0.5, 1], [0.5, 1]).style.cssText; }}")
    assert style == "left: 0%; top: 0%; width: 50%; height: 100%;"
    page.keyboard.press("Escape")
    page.click("#options summary")
    page.select_option("#group", "parity")
    expect(page.locator(".card")).to_have_count(2)
    add_word(page, "snow", "#plus")
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
    chosen = ids(page)[2]
    for key in ("Home", "End", "ArrowRight"):  # the second page has no answer that counts
        page.locator(".card").nth(2).focus() if key == "Home" else page.keyboard.press(key)
        if key == "End":
            expect(page.locator("#results li").last).not_to_have_attribute("aria-posinset", "60")
            continue
        page.keyboard.press("Enter")
        expect(page.locator("#sentence button").first).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#detail")).to_be_hidden()
    assert sent == [{"answer": "an id", "item": chosen}]
    assert len(set(names)) == 1
    assert len(names[0] or "") == 24


def test_errors_are_shown_with_their_reason(browser: Browser, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "letter.png"
    file.write_text("no image")
    with open_page(browser, server) as (page, problems):
        page.set_input_files("#file", file)
        expect(page.locator("#problem")).to_contain_text("not an image in a supported format (JPEG, PNG,")
        assert not violations(page)
        assert all("415" in problem for problem in problems)  # Chromium itself reports the status
        page.click("#chips button")
        expect(page.locator("#problem")).to_be_empty()
        page.route("**/api/v1/search", lambda route: route.abort())
        page.fill("#query", "a star")
        page.press("#query", "Enter")
        expect(page.locator("#problem")).to_have_text("The service cannot be reached. Try again.")
        page.unroute("**/api/v1/search")
        search(page, "a star")
        page.route("**/api/v1/search", lambda route: route.abort())
        page.evaluate("scrollTo(0, 9999)")
        expect(page.locator("#problem")).to_contain_text("cannot be reached")
        page.unroute("**/api/v1/search")
        count = len(ids(page))
        page.click("#more")
        expect(page.locator("#problem")).to_be_empty()
        page.wait_for_function(f"document.querySelectorAll('.card').length > {count}")


def test_input_before_the_scripts_are_loaded_is_kept_and_searched(browser: Browser, server: Server) -> None:
    check_input_before_the_scripts(browser, f"http://127.0.0.1:{server.port}/")
