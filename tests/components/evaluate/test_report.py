"""The page in a real browser: complete, self-contained, at home on a desk and in a hand, by day and by night."""

from pathlib import Path

import pytest

from tests.browser import Tab

SECTIONS = ("figures", "champion", "curves", "queries", "pointing", "meaning", "modifiers", "suspicious", "lineage")
BROKEN = "[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length"
LOADED = """Promise.all([...document.images].map(i => {
  i.loading = 'eager'; return i.decode().catch(() => 0) })).then(() => 1)"""
# What sticks out to the right and cannot be scrolled to inside a box of its own.
OUTSIDE = """[...document.querySelectorAll('body *')].filter(e =>
  e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll') && !e.closest('nav')).length"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_opens_from_disk_and_fits(tab: Tab, evaluated: Path, width: int, dark: bool) -> None:
    page = evaluated / "report" / "index.html"
    tab.open(page.as_uri(), width=width, dark=dark)
    tab.evaluate(LOADED)
    assert tab.problems == []
    assert tab.evaluate("document.images.length") > 20
    assert tab.evaluate(BROKEN) == 0
    assert tab.evaluate(OUTSIDE) == 0
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert [tab.evaluate(f"document.getElementById('{name}').offsetHeight > 60") for name in SECTIONS] == [True] * 9
    # A dark page is dark, and its letters are not.
    channel = int(tab.evaluate(BACKGROUND).removeprefix("rgb(").split(",")[0])
    assert (channel < 60) == dark
    letters = int(tab.evaluate("getComputedStyle(document.body).color").removeprefix("rgb(").split(",")[0])
    assert (letters > 180) == dark


def test_the_page_is_one_file_without_scripts(evaluated: Path) -> None:
    text = (evaluated / "report" / "index.html").read_text()
    assert [path.name for path in (evaluated / "report").iterdir()] == ["index.html"]
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_boxes_and_spots_lie_on_their_image(tab: Tab, evaluated: Path) -> None:
    tab.open((evaluated / "report" / "index.html").as_uri(), width=1440)
    tab.evaluate(LOADED)
    inside = tab.evaluate(
        """[...document.querySelectorAll('.point .stage')].map(stage => {
          const frame = stage.getBoundingClientRect(), spot = stage.querySelector('.spot').getBoundingClientRect();
          const x = spot.x + spot.width / 2, y = spot.y + spot.height / 2;
          return frame.left <= x && x <= frame.right && frame.top <= y && y <= frame.bottom
            && stage.querySelectorAll('.box').length > 0;
        })"""
    )
    assert inside
    assert all(inside)
    assert tab.evaluate("document.querySelectorAll('.pair .stage .heat').length") == 4
