"""Links of a built site: every page, file and anchor exists, and nothing is loaded from another
host."""

from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Attribute of the address that a browser loads by itself, by element."""


class _Page(HTMLParser):
    """Anchors, links and loaded addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if LOADED.get(tag, "") in values and values.get("rel") != "canonical":
            self.loaded.append(values[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return one line for each broken link, and for each address of another host that a page
    loads."""
    pages = {
        file: _Page(file.read_text())
        for file in sorted(site.rglob("*.html"))
        if file.name != "404.html"
    }
    return [
        f"{file.relative_to(site)}: {problem}"
        for file, page in pages.items()
        for problem in _of(file, page, pages)
    ]


def _of(file: Path, page: _Page, pages: Mapping[Path, _Page]) -> Iterator[str]:
    for address in page.loaded:
        if urlsplit(address).netloc:
            yield f"loads {address}"
    for address in {*page.links, *page.loaded}:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file():
            yield f"{address} does not exist"
        elif (
            parts.fragment
            and target in pages
            and unquote(parts.fragment) not in pages[target].anchors
        ):
            yield f"{address}: no such anchor"
