"""The first page of a report as a picture, by Chromium."""

import tempfile
from pathlib import Path

from PIL import Image

from tests.browser import browser, find_chromium

WIDTH, HEIGHT = 1200, 1500
"""Pixels of the window."""


def first_page(report: Path) -> Image.Image:
    """Return the first page of ``report``, an HTML file.

    Raises:
        RuntimeError: there is no Chromium.
    """
    program = find_chromium()
    if program is None:
        raise RuntimeError("no Chromium on the path: apt-get install chromium, or set CHROMIUM")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        picture = Path(folder) / "report.png"
        with browser(program, Path(folder) / "profile") as tab:
            tab.open(report.resolve().as_uri(), width=WIDTH, height=HEIGHT)
            tab.screenshot(picture)
        with Image.open(picture) as page:
            return page.convert("RGB").crop((0, 0, WIDTH, HEIGHT)).quantize(64)
