"""The static copy in headless Chromium: pages, errors, links, axe, no other host; its answers:
``test_interfaces``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from bifocal.serving.service.models import SearchModel
from bifocal.serving.site.writer import SiteReport
from tests.bifocal.serving.page.steps import add_word, check_input_before_the_scripts, ids, search
from tests.bifocal.serving.site.static_copy import DELETED, REMOVED, serve_files
from tests.browser import open_tab, violations

QUERIES = ("a red star on sand with a blue moon", "a, !?")
SEARCH = (
    "async query => (await import('./page/api.js')).search(query, null, new "
    "AbortController().signal)"
)


@pytest.fixture(scope="module")
def served(copied: tuple[Path, SearchModel, SiteReport]) -> SearchModel:
    """The served model of the service."""
    return copied[1]


@pytest.fixture(scope="module")
def address(copied: tuple[Path, SearchModel, SiteReport]) -> Iterator[str]:
    """Address of the copy; like a project of GitHub Pages, it is in a folder."""
    with serve_files(copied[0].parent) as host:
        yield f"{host}/copy/"


@pytest.fixture(scope="module")
def tab(browser: Browser, address: str) -> Iterator[Page]:
    """A tab with the copy; the tests fail if the page reports an error or calls another host."""
    with open_tab(browser, address, viewport={"width": 1200, "height": 850}) as (opened, problems):
        yield opened
        assert not problems


@pytest.fixture
def page(tab: Page, address: str) -> Page:
    """The tab with an empty query."""
    tab.goto("about:blank")
    tab.goto(address)
    expect(tab.locator("#examples button")).to_have_count(6)
    return tab


def ask(page: Page, **query: Any) -> Any:
    """Return the answer of the page's API to a search."""
    return page.evaluate(
        SEARCH, {"plus": [], "minus": [], "where": {}, "k": 24, "offset": 0} | query
    )


def test_pages_follow_each_other(tab: Page) -> None:
    every = ask(tab, like="test-00030", k=100)
    pages = [ask(tab, like="test-00030", k=40, offset=offset) for offset in (0, 40, 80)]
    assert [result for part in pages for result in part["results"]][:100] == every["results"]
    last = ask(tab, like="test-00030", k=40, offset=240)
    assert (len(last["results"]), last["more"], every["more"]) == (
        13,
        False,
        True,
    )  # 256 without three


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"text": "a", "where": {"nothing": 1}}, "400 the collection has no metadata 'nothing'"),
        ({"text": "a", "where": {"number": "7"}}, "400 .*does not fit the metadata 'number'"),
        ({"text": "a", "where": {"number": 7.5}}, "400 .*does not fit the metadata 'number'"),
        ({"text": "a", "where": {"parity": {"least": 1}}}, "400 .*min and max"),
        ({"text": " "}, "400 a sentence is empty"),
        (
            {"text": "zebra"},
            "400 the model knows none of the words of 'zebra': use words of its captions",
        ),
        ({}, "400 nothing to search by"),
        ({"text": "a", "group": "nothing"}, "400 the collection has no metadata 'nothing'"),
        ({"text": "a", "mode": "hybrid"}, "409 this collection cannot be searched by hybrid"),
        ({"like": DELETED}, "404 there is no item"),
        ({"like": REMOVED}, "404 there is no item"),
    ],
)
def test_bad_requests_have_a_reason(tab: Page, query: dict[str, Any], reason: str) -> None:
    script = (
        f"query => ({SEARCH})(query).then(() => 'found', error => `${{error.status}} "
        "${error.message}`)"
    )
    found = tab.evaluate(
        script, {"plus": [], "minus": [], "where": {}, "k": 24, "offset": 0} | query
    )
    assert re.match(reason, found)


def test_the_page_opens_with_the_collection_as_the_service_does(
    page: Page, served: SearchModel
) -> None:
    expect(page.locator("#status")).to_have_text("254 images.")
    left = [served.index.ids[row] for row in served.newest().tolist()]
    assert ids(page) == left[: len(ids(page))]
    script = "async page => (await import('./page/api.js')).browse(page)"
    found = page.evaluate(script, {"where": {"parity": "odd"}, "k": 100, "offset": 100})
    assert [item["id"] for item in found["results"]] == [
        name for name in left if int(name[-1]) % 2
    ][100:200]
    assert (found["items"], found["more"]) == (126, False)


def test_the_page_searches_filters_and_links(page: Page, served: SearchModel) -> None:
    expect(page.locator("#about")).to_contain_text(
        "254 images. Model: run. The model reads English."
    )
    expect(page.locator("#choose")).to_be_hidden()
    assert not violations(page)
    search(page, QUERIES[0])
    assert (
        ids(page)
        == [result["id"] for result in ask(page, text=QUERIES[0], k=60)["results"]][
            : len(ids(page))
        ]
    )
    expect(page.locator(".card img").first).to_have_js_property("naturalWidth", 128)
    assert not violations(page)
    search(page, QUERIES[-1])
    expect(page.locator("#status")).to_have_text(
        "Nothing like it in this collection. The closest of 254 images:"
    )
    expect(page.locator(".card .maybe")).to_have_count(0)  # the status says it once
    search(page, QUERIES[0])
    expect(page.locator("#status")).to_have_text("Best first, of 254 images.")
    assert 0 < page.locator(".card .maybe").count() < len(ids(page))
    title = page.locator(".card img").nth(1).get_attribute("alt")
    page.locator(".card").nth(1).click()
    expect(page.locator("#detail-title")).to_have_text(str(title))
    expect(page.locator("#where")).to_be_empty()
    expect(page.locator("#original")).to_be_hidden()
    assert not violations(page)
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename.endswith(".webp")
    page.reload()
    expect(page.locator("#detail-title")).to_have_text(str(title))
    page.keyboard.press("Escape")
    page.click("#options summary")
    page.check("input[name=odd]")
    page.fill("input[name=max]", "39")
    page.press("input[name=max]", "Tab")
    add_word(page, "a star", "#plus")
    expect(page.locator(".card")).to_have_count(19)  # 13 is deleted
    assert all(int(item_id[-2:]) % 2 and int(item_id[-5:]) < 40 for item_id in ids(page))
    page.click("#options summary")
    page.fill("input[name=max]", "-1")
    page.press("input[name=max]", "Tab")
    expect(page.locator("#status")).to_contain_text("Nothing found")


def test_further_results_and_a_dropped_image(page: Page) -> None:
    page.goto(f"{page.url.partition('#')[0]}#like=test-00030")
    expect(page.locator("#status")).to_contain_text("Best first")
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"no image"})
    page.evaluate("scrollTo(0, 9999)")
    expect(page.locator("#results li").last).to_have_attribute("aria-setsize", "-1")
    known = [result["id"] for result in ask(page, like="test-00030", k=100)["results"]]
    place = int(str(page.locator("#results li").last.get_attribute("aria-posinset")))
    assert place > 60
    assert ids(page)[-1] == known[place - 1]
    expect(page.locator("#problem")).to_be_empty()


def test_a_copy_on_a_disk_says_that_it_needs_a_server(
    browser: Browser, copied: tuple[Path, SearchModel, SiteReport]
) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((copied[0] / "index.html").as_uri())
        text = (
            "This page needs a web server: run python -m http.server in its folder, and open "
            "http://localhost:8000."
        )
        expect(page.locator("main")).to_have_text(text, use_inner_text=True)
        expect(page.locator("#search")).to_be_hidden()
        assert not violations(page)


def test_a_file_that_cannot_be_loaded_is_reported_and_loaded_again(
    browser: Browser, address: str
) -> None:
    with open_tab(browser, address) as (page, problems):
        page.route("**/vectors.i8", lambda route: route.abort())
        expect(page.locator("#status")).to_have_text("254 images.")  # the page is ready
        page.fill("#query", QUERIES[0])
        page.press("#query", "Enter")
        expect(page.locator("#problem")).to_contain_text("A file of this page cannot be loaded (")
        assert not violations(page)
        assert problems
        page.unroute("**/vectors.i8")
        search(page, QUERIES[0])
        expect(page.locator("#problem")).to_be_empty()


def test_input_before_the_scripts_are_loaded_is_kept_and_searched(
    browser: Browser, address: str
) -> None:
    check_input_before_the_scripts(browser, address)
