"""The tab of the tests of the page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.bifocal.serving.page.steps import open_page
from tests.bifocal.serving.server import Server


@pytest.fixture(scope="module")
def tab(browser: Browser, server: Server) -> Iterator[tuple[Page, list[str]]]:
    """The tab of the tests, see ``open_page``."""
    with open_page(browser, server) as opened:
        yield opened


@pytest.fixture
def page(tab: tuple[Page, list[str]], server: Server) -> Iterator[Page]:
    """The tab with an empty query; the test fails if the page reports an error or calls another
    host."""
    opened, problems = tab
    opened.goto("about:blank")
    opened.goto(f"http://127.0.0.1:{server.port}/")
    expect(opened.locator("#examples button")).to_have_count(6)
    yield opened
    opened.unroute_all()
    assert not problems
