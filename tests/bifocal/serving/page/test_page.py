"""The page in headless Chromium: search, heatmaps, permalinks, keyboard, errors, axe."""

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect

from tests.bifocal.serving.page.steps import check_input_before_the_scripts, ids, open_page, search
from tests.bifocal.serving.server import Server
from tests.browser import violations

QUERY = "a red star on sand with a blue moon"


def test_search_shows_results_and_where_the_phrases_are(page: Page, server: Server) -> None:
    expect(page.locator("#about")).to_contain_text("The model reads English.")
    search(page, QUERY)
    answer = server.search(text=QUERY, k=60)
    assert ids(page) == [result["id"] for result in answer["results"]][: len(ids(page))]
    expect(page).to_have_title(f"{QUERY} – Bifocal")
    assert not violations(page)
    page.locator(".card").first.click()
    phrases = page.locator("#sentence button")
    expect(phrases).to_have_text(["red star", "sand", "blue moon"])
    expect(page.locator("#sentence")).to_have_text(QUERY)
    expect(page.locator("#facts")).to_contain_text(f"score{answer['results'][0]['score']:.2f}")
    assert not violations(page)
    phrases.first.click()
    explained = server.post("explain", {"id": answer["results"][0]["id"], "text": QUERY})[
        "phrases"
    ][0]
    x, y = (round(100 * value) for value in explained["point"])
    expect(page.locator("#where")).to_contain_text(
        f"“red star” is around {x} % from the left and {y} % from the top."
    )
    expect(page.locator("#heatmaps > div:not([hidden])")).to_have_count(1)
    mask = page.locator(".heat").first.evaluate("element => element.style.maskImage")
    assert explained["heatmap"] in mask
    page.click("#heat")
    expect(page.locator("#heat")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#heatmaps")).to_be_hidden()
    page.click("#heat")
    expect(page.locator("#heatmaps")).to_be_visible()


def test_an_address_is_a_permalink(page: Page, browser: Browser) -> None:
    search(page, QUERY)
    page.locator(".card").nth(2).click()
    expect(page.locator("#sentence button").first).to_be_visible()
    title, previous = page.text_content("#detail-title"), ids(page)[:10]
    phone = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    with phone as context:
        other = context.new_page()
        other.goto(page.url)
        expect(other.locator("#detail-title")).to_have_text(str(title), timeout=60_000)
        expect(other.locator("#sentence button").first).to_be_visible(timeout=60_000)
        assert not violations(other)
        assert other.evaluate("document.documentElement.scrollWidth") <= 390
        other.keyboard.press("Escape")
        assert ids(other)[:10] == previous
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
    for key, place in (
        ("ArrowRight", 2),
        ("ArrowDown", 2 + columns),
        ("ArrowUp", 2),
        ("Home", 1),
        ("End", 60),
    ):
        page.keyboard.press(key)
        assert page.evaluate(focused) == str(place), key
    expect(page.locator("#results li").last).not_to_have_attribute(
        "aria-posinset", "60"
    )  # the next page follows
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


def test_a_click_is_sent_if_the_service_asks_for_it_and_the_tab_has_one_name(page: Page) -> None:
    names: list[str | None] = []

    def answer(route: Route) -> None:
        found = route.fetch()
        names.append(route.request.headers.get("bifocal-client"))
        first = not json.loads(route.request.post_data or "")["offset"]
        route.fulfill(response=found, json=found.json() | {"answer": "an id" if first else None})

    sent: list[Any] = []
    page.route("**/api/v1/search", answer)
    page.route(
        "**/api/v1/click",
        lambda route: (sent.append(route.request.post_data_json), route.fulfill(status=204)),
    )
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
        # The dialog is hidden before the page moves the focus and goes back: a key in between would
        # be undone.
        expect(page).not_to_have_url(re.compile("item="))
    assert sent == [{"answer": "an id", "item": chosen}]
    assert len(set(names)) == 1
    assert len(names[0] or "") == 24


def test_errors_are_shown_with_their_reason(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "letter.png"
    file.write_text("no image")
    with open_page(browser, server) as (page, problems):
        page.set_input_files("#file", file)
        expect(page.locator("#problem")).to_contain_text(
            "This file is not an image that can be read: not an image in a supported format "
            "(JPEG, PNG, GIF"
        )
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
        expect(page.locator(".card").nth(count)).to_be_attached()


def test_input_before_the_scripts_are_loaded_is_kept_and_searched(
    browser: Browser, server: Server
) -> None:
    check_input_before_the_scripts(browser, f"http://127.0.0.1:{server.port}/")
