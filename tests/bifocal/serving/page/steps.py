"""Steps of the tests of the search page."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, Route, expect

from tests.bifocal.serving.server import Server
from tests.browser import MILLISECONDS, open_tab


@contextmanager
def open_page(browser: Browser, server: Server) -> Iterator[tuple[Page, list[str]]]:
    """Yield a tab with the page, and a list of console errors and requests to other hosts."""
    address, window = f"http://127.0.0.1:{server.port}/", {"width": 1200, "height": 850}
    with open_tab(browser, address, viewport=window) as (opened, problems):
        expect(opened.locator("#examples button")).to_have_count(6)
        yield opened, problems


def search(page: Page, text: str) -> None:
    page.fill("#query", text)
    page.press("#query", "Enter")
    expect(page.locator("#status")).to_contain_text(re.compile("Best first|The closest of"))
    expect(page.locator("#results")).not_to_have_attribute("aria-busy", "true")


def add_word(page: Page, word: str, button: str) -> None:
    """Add a word in the options, or take it away by the button "#minus"."""
    page.locator("#options").evaluate("element => { element.open = true; }")
    page.fill("#word", word)
    page.click(button)
    page.keyboard.press("Escape")


def ids(page: Page) -> list[str]:
    """Return the ids of the pictures in the document, at one moment: scrolling adds and removes
    some."""
    expect(page.locator("#results")).not_to_have_attribute("aria-busy", "true")
    found: list[str] = page.locator(".card").evaluate_all(
        "cards => cards.map((card) => card.dataset.id)"
    )
    return found


def check_input_before_the_scripts(browser: Browser, address: str) -> None:
    """Type into the page at ``address``, and submit it, while its scripts are on their way."""
    held: list[Route] = []

    def open_without_scripts(page: Page) -> None:
        page.goto("about:blank")
        page.goto(address, wait_until="commit")
        expect(page.locator("#query")).to_be_visible()

    def load_scripts(page: Page) -> None:
        while not held:
            page.wait_for_timeout(10)
        held.pop().continue_()
        expect(page.locator("#about")).to_contain_text("images.")

    with browser.new_context() as context:
        context.set_default_timeout(MILLISECONDS)
        page = context.new_page()
        page.route("**/page/page.js", lambda route: held.append(route))
        open_without_scripts(page)
        page.fill("#query", "a red star")
        load_scripts(page)
        expect(page.locator("#examples button")).to_have_count(6)
        expect(page.locator("#query")).to_have_value("a red star")
        page.press("#query", "Enter")
        expect(page.locator("#status")).to_contain_text("Best first")
        page.fill("#query", "a blue star")  # a filter does not take it away
        page.evaluate("location.hash += '&where=%7B%22number%22%3A%7B%22max%22%3A99%7D%7D'")
        expect(page.locator("#chips button")).to_contain_text("number: ≤ 99")
        expect(page.locator("#query")).to_have_value("a blue star")
        open_without_scripts(page)
        held.clear()
        page.fill("#query", "a blue moon")
        page.locator("#options summary").click()
        page.fill("#word", "snow & sand")
        page.press("#query", "Enter")
        page.wait_for_url(f"{address}?*", wait_until="commit")
        load_scripts(page)
        expect(page.locator("#status")).to_contain_text("Best first")
        assert page.url == f"{address}#text=a+blue+moon&plus=snow+%26+sand"
        expect(page.locator("#query")).to_have_value("a blue moon")
        expect(page.locator("#chips button")).to_contain_text(["+ snow & sand"])
