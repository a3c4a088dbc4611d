"""The gallery of the page in headless Chromium: the collection, its rows, an item, a phone."""

from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from bifocal.search.trained_model import TrainedModel
from tests.bifocal.serving.page.steps import ids, search
from tests.bifocal.serving.server import Server
from tests.browser import open_tab, violations

QUERY = "a red star on sand with a blue moon"


def test_the_page_opens_with_the_collection_and_its_end_is_reached_by_scrolling(
    page: Page, server: Server
) -> None:
    expect(page.locator("#status")).to_have_text("256 images.")
    expect(page.locator("#query")).to_be_focused()
    assert not violations(page)
    title = page.locator("#examples-title").bounding_box()
    assert title is not None
    assert title["height"] < 32, "the title of the examples is one line"
    newest = server.post("browse", {"k": 100})["results"]
    shown = ids(page)
    assert shown == [item["id"] for item in newest][: len(shown)]
    places = (
        "() => [...document.querySelectorAll('#results li')].map((item) => [item.ariaPosInSet, "
        "item.style.top])"
    )
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
    script = (
        "async ([shapes, complete]) => (await import('./page/gallery.js')).layOut(shapes, 700, "
        "200, complete)"
    )
    rows: Any = page.evaluate(script, [shapes, True])
    assert [number for row in rows for number in range(row["first"], row["end"])] == list(
        range(len(shapes))
    )
    for number, row in enumerate(rows):
        widths = [after - left - 6 for left, after in pairwise(row["lefts"])]
        assert row["height"] <= 200
        assert row["top"] == sum(previous["height"] + 6 for previous in rows[:number])
        for width, shape in zip(widths, shapes[row["first"] : row["end"]], strict=True):
            assert width == pytest.approx(
                shape * row["height"], abs=1.5 + 0.5 * shapes[0] * len(widths)
            )
        assert row["lefts"][-1] == 706 or row is rows[-1]
    assert page.evaluate(script, [shapes, False]) == [
        row for row in rows if row["lefts"][-1] == 706
    ]


def test_hostile_names_and_captions_stay_text(page: Page) -> None:
    evil = "<img src=x onerror=alert(1)> a star\"'"

    def answer(route: Route) -> None:
        found = route.fetch().json()
        for item in found["results"]:
            item.update(
                id=f"{evil}{item['id']}",
                captions=[evil, evil],
                name=evil,
                metadata={evil: evil, "folder": evil, "split": "val"},
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
    expect(page.locator("#facts")).not_to_contain_text("split")  # of the training
    assert page.locator("img[src=x]").count() == 0
    assert page.url.endswith(quote_plus(ids(page)[0], safe="*"))
    page.keyboard.press("Escape")


def test_files_facts_and_links_of_an_item(page: Page, server: Server, demo: TrainedModel) -> None:
    page.goto(f"{page.url.partition('#')[0]}#item=test-00042")
    path = Path(str(demo.collection.image(42)))
    size = -(-path.stat().st_size // 1000)
    expect(page.locator("#facts")).to_contain_text(
        f"file{path.name}size128 × 128 pixels, {size} KBnumber42parityeven"
    )
    link = page.locator("#original").get_attribute("href") or ""
    assert server.get(f"/{link}")[1] == path.read_bytes()
    with page.expect_download() as download:
        page.click("#download")
    assert (download.value.suggested_filename, download.value.path().read_bytes()) == (
        path.name,
        path.read_bytes(),
    )
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
    assert ids(page)[:3] == [
        result["id"] for result in server.search(like="test-00042", k=3)["results"]
    ]
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
            "type, {bubbles: true, ...Object.fromEntries(['touches', "
            "'changedTouches'].map((name) => [name, [new Touch("
        )
        touch += "{identifier: 1, target: document.body, clientX: x, clientY: 9})]]))}))"
        for type_, x in (("touchstart", 300), ("touchend", 100)):
            page.evaluate(touch, [type_, x])
        expect(page).not_to_have_title(first_title)
        assert not problems
