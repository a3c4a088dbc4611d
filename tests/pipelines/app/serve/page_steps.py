"""Steps of the tests of the search page, which the service and the static copy share."""

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect


def search(page: Page, text: str) -> None:
    page.fill("#query", text)
    page.press("#query", "Enter")
    expect(page.locator("#status")).to_contain_text("images shown")


def ids(page: Page) -> list[str]:
    return [str(card.get_attribute("data-id")) for card in page.locator(".card").all()]


def violations(page: Page) -> Any:
    """Return what axe finds: WCAG 2 A and AA, and best practices."""
    return [(found["id"], found["nodes"][0]["html"]) for found in Axe().run(page).response["violations"]]
