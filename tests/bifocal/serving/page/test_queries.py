"""Queries of the page in headless Chromium: images, words, filters, parts of images, groups."""

import base64
import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bifocal.search.trained_model import TrainedModel
from tests.bifocal.serving.page.steps import add_word, ids, search
from tests.bifocal.serving.server import Server
from tests.browser import violations

QUERY = "a red star on sand with a blue moon"


def test_an_image_with_words_added_and_taken_away(
    page: Page, server: Server, demo: TrainedModel
) -> None:
    path = Path(str(demo.collection.image(30)))
    page.set_input_files("#file", path)
    expect(page.locator("#chips button")).to_contain_text([f"Image: {path.name}"])
    expect(page.locator(".card").first).to_have_attribute("data-id", "test-00030")
    expect(page).to_have_title(f"{path.name} – Bifocal")
    add_word(page, "snow", "#minus")
    expect(page.locator("#chips button")).to_contain_text([f"Image: {path.name}", "− snow"])
    address = "/api/v1/search/image?k=60&minus=snow"
    body = server.request("POST", address, path.read_bytes(), {"content-type": "image/jpeg"})[1]
    expected = [result["id"] for result in json.loads(body)["results"]]
    for place, item in enumerate(expected[:6]):
        expect(page.locator(".card").nth(place)).to_have_attribute("data-id", item)
    shown = ids(page)  # more cards can appear at any time
    assert shown == expected[: len(shown)]
    page.locator("#chips button").first.click()
    expect(page.locator("#chips button")).to_contain_text(["− snow"])
    expect(page.locator("#status")).to_have_text("256 images.")


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_a_picture_is_dropped_or_pasted(page: Page, demo: TrainedModel, event: str) -> None:
    picture = base64.b64encode(Path(str(demo.collection.image(31))).read_bytes()).decode()
    page.evaluate(
        """async ([event, picture]) => {
            const data = new DataTransfer();
            const bytes = Uint8Array.from(atob(picture), (letter) => letter.charCodeAt(0));
            data.items.add(new File([bytes], "mine.jpg", {type: "image/jpeg"}));
            const made = event === "drop" ? new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true})
                : new ClipboardEvent("paste", {clipboardData: data, bubbles: true});
            document.body.dispatchEvent(made);
        }""",
        [event, picture],
    )
    expect(page.locator("#chips button")).to_contain_text(["Image: mine.jpg"])
    expect(page.locator(".card").first).to_have_attribute("data-id", "test-00031")


def test_filters_and_the_empty_state(page: Page) -> None:
    page.click("#options summary")
    page.check("input[name=odd]")
    expect(page.locator("#status")).to_have_text("128 images.")  # without a query, too
    page.fill("input[name=max]", "39")
    page.press("input[name=max]", "Tab")
    expect(page.locator("#status")).to_have_text("20 images.")
    assert not violations(page)
    search(page, "a star")
    expect(page.locator(".card")).to_have_count(20)
    assert all(int(item_id[-2:]) % 2 and int(item_id[-5:]) < 40 for item_id in ids(page))
    expect(page.locator("#chips button")).to_contain_text(["number: ≤ 39", "parity: odd"])
    page.click("#options summary")
    page.fill("input[name=max]", "-1")
    page.press("input[name=max]", "Tab")
    expect(page.locator("#status")).to_contain_text("Nothing found")
    assert ids(page) == []


def test_words_parts_of_images_and_groups(page: Page, server: Server) -> None:
    search(page, "even star")
    by_vector = ids(page)
    page.click("#options summary")
    page.select_option("#mode", "hybrid")
    page.wait_for_url("**mode=hybrid")
    expected = server.search(text="even star", mode="hybrid", k=60)["results"]
    expect(page.locator(".card").first).to_have_attribute("data-id", expected[0]["id"])
    assert by_vector != ids(page) == [result["id"] for result in expected][: len(ids(page))]
    page.select_option("#mode", "regions")
    search(page, "a red star")
    (best,) = server.search(text="a red star", mode="regions", k=1)["results"]
    expect(page.locator(".card").first).to_have_attribute("data-id", best["id"])
    assert page.locator(".card .region").count() == len(ids(page))
    assert not violations(page)
    for frame in (".card", "#picture"):
        if frame == "#picture":
            page.locator(".card").first.click()
        x0, y0, x1, y1 = best["box"]
        expect(page.locator(f"{frame} img").first).to_have_js_property("complete", True)
        box, image = (
            page.locator(f"{frame} {name}").first.bounding_box() for name in (".region", "img")
        )
        assert box["x"] + box["width"] / 2 == pytest.approx(
            image["x"] + image["width"] * (x0 + x1) / 2, abs=1
        )
        assert box["y"] + box["height"] / 2 == pytest.approx(
            image["y"] + image["height"] * (y0 + y1) / 2, abs=1
        )
    expect(page.locator("#region")).to_contain_text(f"{round(50 * (x0 + x1))} % from the left")
    # A card of half the width shows the central half of an image.
    script = 'const {regionBox} = await import("/page/detail.js");'
    style = page.evaluate(
        f"async () => {{ {script} return regionBox([0.25, 0, 0.5, 1], [0.5, 1]).style.cssText; }}"
    )
    assert style == "left: 0%; top: 0%; width: 50%; height: 100%;"
    page.keyboard.press("Escape")
    page.click("#options summary")
    page.select_option("#group", "parity")
    expect(page.locator(".card")).to_have_count(2)
    add_word(page, "snow", "#plus")
    expect(page.locator("#mode")).to_be_disabled()
    expect(page.locator(".card .region")).to_have_count(0)
    expect(page.locator("#problem")).to_be_empty()
