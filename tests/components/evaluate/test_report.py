"""Report in a real browser: complete and self-contained, on wide and narrow screens, light and
dark."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import open_tab, violations

SECTIONS = (
    "retrieval",
    "queries",
    "pointing-game",
    "semantic-retrieval",
    "text-modifiers",
    "similar-images",
    "data-quality",
    "skipped",
    "lineage",
)
BROKEN = "[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length"
LOADED = """Promise.all([...document.images].map(i => {
  i.loading = 'eager'; return i.decode().catch(() => 0) })).then(() => 1)"""
# Elements beyond the right edge that no box of their own scrolls.
OUTSIDE = """[...document.querySelectorAll('body *')].filter(e =>
  e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll') && !e.closest('nav')).length"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_page_opens_from_disk_and_fits(
    browser: Browser, evaluated: Path, width: int, dark: bool
) -> None:
    address = (evaluated / "report" / "index.html").as_uri()
    viewport, scheme = {"width": width, "height": 900}, "dark" if dark else "light"
    window = open_tab(
        browser, address, viewport=viewport, is_mobile=width < 500, color_scheme=scheme
    )
    with window as (tab, problems):
        tab.evaluate(LOADED)
        assert problems == []
        assert tab.evaluate("document.images.length") > 20
        assert tab.evaluate(BROKEN) == 0
        assert tab.evaluate(OUTSIDE) == 0
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate(
            "[...document.querySelectorAll('section')].map(section => section.id)"
        ) == list(SECTIONS)
        assert all(
            tab.evaluate(f"document.getElementById('{name}').offsetHeight > 60")
            for name in SECTIONS
        )
        links = tab.evaluate(
            "[...document.querySelectorAll('nav a')].map(link => link.getAttribute('href'))"
        )
        assert links == [f"#{name}" for name in SECTIONS]
        # A dark page has light text.
        channel = int(tab.evaluate(BACKGROUND).removeprefix("rgb(").split(",")[0])
        assert (channel < 60) == dark
        assert not violations(tab)
        letters = int(
            tab.evaluate("getComputedStyle(document.body).color").removeprefix("rgb(").split(",")[0]
        )
        assert (letters > 180) == dark


def test_page_is_one_file_without_scripts(evaluated: Path) -> None:
    text = (evaluated / "report" / "index.html").read_text()
    assert [path.name for path in (evaluated / "report").iterdir()] == ["index.html"]
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_boxes_and_points_lie_on_their_image(browser: Browser, evaluated: Path) -> None:
    address = (evaluated / "report" / "index.html").as_uri()
    with open_tab(browser, address, viewport={"width": 1440, "height": 900}) as (tab, _):
        tab.evaluate(LOADED)
        inside = tab.evaluate(
            """[...document.querySelectorAll('#pointing-game .stage')].map(stage => {
              const frame = stage.getBoundingClientRect(), spot = stage.querySelector('.spot').getBoundingClientRect();
              const x = spot.x + spot.width / 2, y = spot.y + spot.height / 2;
              return frame.left <= x && x <= frame.right && frame.top <= y && y <= frame.bottom
                && stage.querySelectorAll('.box').length > 0;
            })"""
        )
        assert inside
        assert all(inside)
        assert tab.evaluate("document.querySelectorAll('#similar-images .stage .heat').length") == 4
