"""Does the page answer at once over a collection of 100,000 images?

    python -m tests.rehearsals.page [--images 100000] [--loaded 2000]

The images of the demo under many names and in drawn shapes, with folders and dates, and their
vectors with noise. Chromium gets real input over the page of ``bifocal serve``, which shares the
machine with it. Values are 95th percentiles of one kind of input: the time from a key or click to
the next frame, by the Event Timing API, where less than 16 ms counts as 16 ms; and the time between
two frames while the page scrolls, which is no such event. Both are wall times. The longest task of
the page's main thread is CPU time, which other work on the machine hardly changes.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from playwright.sync_api import Browser, Page, expect

from benchmarks.common import Report, load
from benchmarks.service_load import Service
from bifocal.search.collection.format import Description
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.trained_model import COLLECTION, ONNX
from pipelines.app.demo import SIDE, unpack
from tests.browser import MILLISECONDS, chromium, open_tab, required_chromium
from tests.mlflow_server import free_port

BAR, SHORTEST = 100.0, 16
"""Milliseconds: the bar of each value, and the least time that the API reports."""
NOISE, FOLDERS, YEARS = 0.05, 24, (2020, 2021, 2022, 2023)
SENTENCES = (
    "a red star on sand",
    "two blue rhombuses",
    "a green cross in the snow",
    "a violet moon above a heart",
)
OBSERVER = f"""
  window.events = new Map();
  window.frames = [];
  new PerformanceObserver((list) => {{
    for (const {{ interactionId: id, duration }} of list.getEntries())
      if (id) events.set(id, Math.max(duration, events.get(id) ?? 0));
  }}).observe({{ type: "event", durationThreshold: {SHORTEST} }});
  let before = 0;
  let scrolled = 0;
  addEventListener("scroll", () => {{ scrolled = performance.now(); }}, {{ passive: true }});
  const frame = (now) => {{
    if (performance.now() - scrolled < 100) frames.push(now - before);
    before = now;
    requestAnimationFrame(frame);
  }};
  requestAnimationFrame(frame);
"""
TAKE = """
  async () => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    const taken = { events: [...events.values()], frames, count: performance.interactionCount - (window.counted ?? 0) };
    window.counted = performance.interactionCount;
    events.clear();
    window.frames = [];
    return taken;
  }
"""


def write_run(folder: Path, count: int) -> None:
    """Write a run with the model of the demo, and its images under ``count`` names."""
    demo, generator = unpack(folder / "demo"), np.random.default_rng(0)
    (folder / "run" / "artifacts").mkdir(parents=True)
    shutil.copy(demo.directory / "params.yaml", folder / "run")
    (folder / "run" / ONNX).symlink_to((demo.directory / ONNX).resolve())
    vectors = np.asarray(demo.collection.vectors[:], np.float32)
    files = [demo.collection.image(row) for row in range(len(vectors))]
    description = demo.collection.description
    made = Description(description.model, "/", description.dimension, None)
    writer, captions, numbers = (
        CollectionWriter(folder / "run" / COLLECTION, made),
        {},
        range(count),
    )
    for number in numbers:
        row = number % len(files)
        vector = vectors[row] + NOISE * generator.standard_normal(vectors.shape[1])
        width, height = (int(SIDE * factor) for factor in generator.uniform(1, 2, 2))
        item = Item(f"{number:06d}", str(files[row]).lstrip("/"), "0" * 64, width, height)
        writer.add(item, vector / np.linalg.norm(vector))
        captions[item.item_id] = demo.collection.captions(row)
    dates = [datetime(2020, 1, 1) + timedelta(minutes=20 * number) for number in numbers]
    columns = {
        "item_id": list(captions),
        "meta.folder": [f"album {n % FOLDERS:02d}" for n in numbers],
    }
    writer.finish(captions, pa.table(columns | {"meta.date": dates}))


def settled(page: Page) -> None:
    """Wait for the answer of the service."""
    expect(page.locator("#results")).not_to_have_attribute(
        "aria-busy", "true", timeout=MILLISECONDS
    )
    expect(page.locator(".card").first).to_be_visible(timeout=MILLISECONDS)


def scroll(page: Page, loaded: int) -> None:
    """Scroll by the wheel, and then by the key End until ``loaded`` images are loaded."""
    page.mouse.move(600, 500)
    for _ in range(120):
        page.mouse.wheel(0, 240)
        page.wait_for_timeout(30)
    last = "() => Number([...document.querySelectorAll('#results li')].at(-1)?.ariaPosInSet ?? 0)"
    page.locator(".card").first.evaluate("card => card.focus({ preventScroll: true })")
    while page.evaluate(last) < loaded:
        page.keyboard.press("End")
        page.wait_for_timeout(30)
    for _ in range(40):
        page.keyboard.press("PageUp")
        page.wait_for_timeout(50)


def type_sentences(page: Page) -> None:
    """Type and search the sentences, letter by letter."""
    for sentence in SENTENCES:
        page.click("#query")
        page.keyboard.press("Control+a")
        page.keyboard.type(sentence, delay=30)
        page.keyboard.press("Enter")
        settled(page)
        page.wait_for_timeout(300)


def choose_filters(page: Page) -> None:
    """Choose folders, one after the other, and remove them; then type first days."""
    page.click("#options summary")
    boxes = page.locator("#columns input[type=checkbox]")
    for number in (*range(12), *range(12)):
        boxes.nth(number).click()
        settled(page)
        page.wait_for_timeout(100)
    for year in YEARS:
        page.locator("#columns input[type=date]").first.focus()
        page.keyboard.type(f"0201{year}", delay=60)
        page.keyboard.press("Tab")
        settled(page)
        page.wait_for_timeout(100)
    page.keyboard.press("Escape")


def open_pictures(page: Page) -> None:
    """Open pictures, turn over to the following ones, and close them."""
    for number in range(8):
        page.locator(".card").nth(number).click()
        page.wait_for_selector("#picture img[src]")
        for _ in range(5):
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(60)
        page.keyboard.press("Escape")
        expect(page.locator("#detail")).to_be_hidden(timeout=MILLISECONDS)


def longest_task(trace: bytes) -> float:
    """Return the CPU time in ms of the longest task on the main thread of the page."""
    events = json.loads(trace)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    tasks = [e for e in events if e["name"].endswith("RunTask") and "tdur" in e]
    return (
        float(max(e["tdur"] for e in tasks if names.get((e["pid"], e["tid"])) == "CrRendererMain"))
        / 1000
    )


def measure(
    report: Report, browser: Browser, page: Page, kind: str, act: Callable[[Page], None]
) -> None:
    """Report the times of one kind of input."""
    page.evaluate(TAKE)
    browser.start_tracing(
        page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"]
    )
    act(page)
    trace = browser.stop_tracing()
    taken = page.evaluate(TAKE)
    events = np.sort([*taken["events"], *[SHORTEST] * (taken["count"] - len(taken["events"]))])
    values = {
        "key or click to next frame": events,
        "between frames while scrolling": np.sort(taken["frames"]),
    }
    for name, found in values.items():
        if len(found) >= 10:
            reference = f"{len(found)}, longest {found[-1]:.0f} ms; {load()}"
            report.add(
                f"{kind}: {name}", np.percentile(found, 95), "ms", at_most=BAR, reference=reference
            )
    report.add(f"{kind}: CPU time of the longest task", longest_task(trace), "ms", at_most=BAR)


def main() -> None:
    """Report the times of all kinds of input."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument(
        "--loaded",
        type=int,
        default=2000,
        help="images that the page has loaded while it is measured",
    )
    options, report = parser.parse_args(), Report("page")
    inputs: Mapping[str, Callable[[Page], None]] = {
        "gallery": lambda page: scroll(page, options.loaded),
        "pictures": open_pictures,
        "sentences": type_sentences,
        "filters": choose_filters,
    }
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder), options.images)
        with (
            Service(Path(folder) / "run", free_port(), Path(folder) / "log.jsonl") as service,
            chromium(required_chromium()) as browser,
            open_tab(
                browser,
                f"http://127.0.0.1:{service.port}/",
                viewport={"width": 1200, "height": 850},
            ) as (
                page,
                _,
            ),
        ):
            page.add_init_script(OBSERVER)
            page.reload()
            settled(page)
            for kind, act in inputs.items():
                measure(report, browser, page, f"{options.images:,} images, {kind}", act)
    if missed := [result.name for result in report.results if result.verdict == "MISS"]:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
