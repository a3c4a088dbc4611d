"""Headless Chromium for tests, driven by playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MILLISECONDS = 60_000.0
"""Timeout of a step; the machine is shared."""


def find_chromium() -> str | None:
    """Return the path of the browser: the variable ``CHROMIUM``, or the first of ``NAMES`` on the
    path."""
    configured = os.environ.get("CHROMIUM")
    return configured or next((path for name in NAMES if (path := shutil.which(name))), None)


def required_chromium() -> str:
    """Return the path of the browser; without it, the test fails if .ci/run installs it, and is
    skipped otherwise."""
    program = find_chromium()
    if program is None:
        message = "no Chromium on the path: apt-get install chromium, or set CHROMIUM"
        if os.environ.get("BIFOCAL_NEEDS_CHROMIUM"):
            pytest.fail(message)
        pytest.skip(message)
    return program


@contextmanager
def chromium(program: str) -> Iterator[Browser]:
    """Yield a running Chromium.

    While it runs, ``asyncio.run`` fails in this thread: make it a fixture of a module, not of the
    session.
    """
    with sync_playwright() as playwright:
        expect.set_options(timeout=MILLISECONDS)
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@contextmanager
def open_tab(browser: Browser, address: str, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """Yield a tab with the page at ``address``, and a list of its errors and its requests to other
    addresses.

    Args:
        options: of playwright's ``new_context``, such as ``viewport``.
    """
    own = (address, "data:", f"blob:{address}")
    with browser.new_context(**options) as context:
        context.set_default_timeout(MILLISECONDS)
        page, problems = context.new_page(), list[str]()
        page.on(
            "console",
            lambda message: problems.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith(own) else problems.append(request.url),
        )
        page.goto(address)
        yield page, problems


def violations(page: Page) -> Any:
    """Return what axe finds: WCAG 2 A and AA, best practices, and a rule that is experimental."""
    from axe_playwright_python.sync_playwright import Axe  # reads its script as the locale says

    options = {"rules": {"label-content-name-mismatch": {"enabled": True}}}
    return [
        (found["id"], found["nodes"][0]["html"])
        for found in Axe().run(page, options=options).response["violations"]
    ]
