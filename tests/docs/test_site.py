"""The documentation site builds without a warning, and its links lead somewhere."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from docs.hooks import API, public_names
from tests.browser import open_tab, violations
from tests.docs.links import problems

ROOT = Path(__file__).parents[2]
PAGE = '<h2 id="here"></h2><a href="other.html#there"></a><a href="#here"></a>'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_site_has_no_broken_link(site: Path) -> None:
    assert problems(site) == []


def test_each_name_of_the_api_has_one_reference() -> None:
    text = "\n".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md")))
    names = re.findall(r"^::: (\S+)", text, flags=re.MULTILINE)
    names += [name for package in API.findall(text) for name in public_names(package)]
    assert len(names) > 100
    assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.slow
def test_pages_of_the_api_have_all_public_names(site: Path) -> None:
    text = (site / "api" / "models.html").read_text()
    names = public_names("bifocal.losses")
    assert len(names) > 10
    assert all(f'id="{name}"' in text for name in names)


@pytest.mark.slow
def test_no_code_block_and_no_table_scrolls_on_a_screen_of_1280_pixels(
    site: Path, browser: Browser
) -> None:
    parts = "article :is(pre, pre code, .md-typeset__scrollwrap)"
    wide = (
        f"[...document.querySelectorAll('{parts}')].filter(e => e.scrollWidth > e.clientWidth "
        "+ 1).length"
    )
    with open_tab(
        browser, (site / "index.html").as_uri(), viewport={"width": 1280, "height": 900}
    ) as (tab, _):
        for page in sorted(site.rglob("*.html")):
            if page.relative_to(site).parts[0] not in ("api", "source"):
                tab.goto(page.as_uri())
                assert not tab.evaluate(wide), page.name


def test_pages_are_accessible(site: Path, browser: Browser) -> None:
    for name in ("index", "serving", "api/index", "stages/embed_collection"):
        address = (site / f"{name}.html").as_uri()
        with open_tab(browser, address, viewport={"width": 1280, "height": 900}) as (tab, _):
            assert not violations(tab), name


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ('<p id="there"></p>', []),
        ("<p></p>", ["page.html: other.html#there: no such anchor"]),
        (None, ["page.html: other.html#there does not exist"]),
        (
            '<p id="there"></p><script src="https://host/x.js"></script>',
            ["other.html: loads https://host/x.js"],
        ),
    ],
)
def test_broken_links_are_found(tmp_path: Path, other: str | None, expected: list[str]) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    if other is not None:
        (tmp_path / "other.html").write_text(other)
    assert problems(tmp_path) == expected
