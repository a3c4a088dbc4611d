"""Take the screenshots of the search page in docs/pictures.

    pip install scikit-image
    python -m docs.make_screenshots --weights FOLDER

``bifocal index`` makes photographs searchable that scikit-image ships as public domain or CC0,
``bifocal serve`` serves them, and Chromium opens the page. FOLDER has the networks of the encoder
``small``.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from PIL import Image
from playwright.sync_api import Page, expect

from docs.make_pictures import PICTURES
from tests.bifocal.serving.server import running_server
from tests.browser import chromium, required_chromium

PHOTOGRAPHS = (
    "astronaut",
    "brick",
    "camera",
    "cat",
    "clock",
    "coffee",
    "grass",
    "gravel",
    "hubble_deep_field",
    "rocket",
)
"""Functions of ``skimage.data``, whose docstrings name the sources: NASA, SpaceX, and photographers
under CC0."""
DESK, PHONE = {"width": 1200, "height": 700}, {"width": 390, "height": 844}
QUERIES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "gallery": ("", ""),
        "results": ("a cat", ""),
        "where": ("a cup and a zebra", "coffee"),
        "refusal": ("a zebra", "cat"),
    }
)
"""Query of each screenshot, and the photograph that it opens."""
SIDE, QUALITY = 1600, 82


def write_photographs(folder: Path) -> None:
    """Write the photographs as JPEG files."""
    from skimage import data  # not a dependency: only this script needs it

    folder.mkdir()
    for name in PHOTOGRAPHS:
        image = Image.fromarray(getattr(data, name)()).convert("RGB")
        image.thumbnail((SIDE, SIDE))
        image.save(folder / f"{name}.jpg", quality=95)


@contextmanager
def served_photographs(weights: Path) -> Iterator[str]:
    """Yield the address of the page with the photographs."""
    with TemporaryDirectory() as temporary:
        photographs, run = Path(temporary) / "photographs", Path(temporary) / "run"
        write_photographs(photographs)
        command = [
            sys.executable,
            "-m",
            "bifocal",
            "index",
            photographs,
            "--weights",
            weights,
            "--folder",
            run,
        ]
        subprocess.run([*map(str, command)], check=True)
        with running_server(run) as server:
            yield f"http://127.0.0.1:{server.port}/"


def take(page: Page, name: str) -> None:
    """Take a screenshot once all pictures are there."""
    expect(page.locator(".card img:not([src])")).to_have_count(0)
    page.wait_for_timeout(500)
    page.screenshot(path=PICTURES / f"page_{name}.jpg", quality=QUALITY)


def main() -> None:
    """Write the screenshots."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--weights", type=Path, required=True, help="folder of the networks of the encoder small"
    )
    weights = parser.parse_args().weights
    with served_photographs(weights) as address, chromium(required_chromium()) as browser:
        for name, (query, photograph) in QUERIES.items():
            page = browser.new_page(viewport=DESK)
            item = f"&item={photograph}.jpg" if photograph else ""
            page.goto(f"{address}#text={query}{item}" if query else address)
            expect(page.locator("#status")).not_to_be_empty()
            if photograph:
                expect(page.locator("#sentence button").first).to_be_visible(timeout=60_000)
            take(page, name)
            page.close()
        phone = browser.new_page(viewport=PHONE, color_scheme="dark", device_scale_factor=2)
        phone.goto(f"{address}#text=a cat")
        take(phone, "phone")


if __name__ == "__main__":
    main()
