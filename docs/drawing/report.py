"""The first page of a report as a picture, by Chromium."""

import io
from pathlib import Path

from PIL import Image

from tests.browser import chromium, find_chromium, open_tab

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
    window = {"width": WIDTH, "height": HEIGHT}
    with (
        chromium(program) as browser,
        open_tab(browser, report.resolve().as_uri(), viewport=window) as (tab, _),
    ):
        return Image.open(io.BytesIO(tab.screenshot())).convert("RGB").quantize(64)
