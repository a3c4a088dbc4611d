"""``bifocal serve`` over a socket: answers equal the library's; deleting, limits, bounds of JSON,
and the log."""

import base64
import json
import time
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from starlette.exceptions import HTTPException

from bifocal.onnx.heatmaps import SIDE, HeatmapModel
from bifocal.search.trained_model import ONNX, TrainedModel
from bifocal.serving.service.api import MAX_DEPTH, MAX_ELEMENTS, parse_json
from tests.bifocal.serving.runs import write_run
from tests.bifocal.serving.server import JSON, Server, running_server

QUERY = "three red stars on a beach"


def ids(answer: dict) -> list[str]:
    return [result["id"] for result in answer["results"]]


def ranked(demo: TrainedModel, query: np.ndarray) -> list[str]:
    """Ids of all items by their cosine, in float64."""
    vectors = np.asarray(demo.collection.vectors[:], np.float64)
    order = np.argsort(-(vectors @ query.astype(np.float64)), kind="stable")
    return [demo.collection.ids[row] for row in order]


def test_search_by_text_without_an_index_is_the_order_of_the_cosines(
    server: Server, demo: TrainedModel
) -> None:
    answer = server.search(text=QUERY, k=7)
    query = demo.encode_text([QUERY])[0]
    expected = ranked(demo, query)[:7]
    assert ids(answer) == expected
    rows = [demo.collection.ids.index(item) for item in expected]
    cosines = [float(np.asarray(demo.collection.vectors[row], np.float64) @ query) for row in rows]
    assert [result["score"] for result in answer["results"]] == pytest.approx(cosines, abs=1e-3)
    assert answer["results"][0]["captions"] == demo.collection.captions(rows[0])
    assert answer["items"] == 256
    assert answer["more"]


def test_pages_are_parts_of_one_order(server: Server) -> None:
    whole = server.search(text=QUERY, k=100)
    pages = [server.search(text=QUERY, k=25, offset=start) for start in (0, 25, 50, 75)]
    assert [item_id for page in pages for item_id in ids(page)] == ids(whole)
    last = server.search(text=QUERY, k=100, offset=200)
    assert len(ids(last)) == 56
    assert not last["more"]


def test_vectors_are_added_and_subtracted(server: Server, demo: TrainedModel) -> None:
    item = "test-00011"
    star, snow, wood = demo.encode_text(["a star", "snow", "wood"])
    query = np.asarray(demo.collection.vectors[11], np.float32) + star + snow - wood
    answer = server.search(like=item, text="a star", plus=["snow"], minus=["wood"], k=20)
    assert ids(answer) == [found for found in ranked(demo, query) if found != item][:20]


def test_search_by_an_upload_equals_the_library(server: Server, demo: TrainedModel) -> None:
    path = Path(str(demo.collection.image(42)))
    body = path.read_bytes()
    address = f"/api/v1/search/image?k=9&plus={quote('a star')}&minus={quote('wood')}"
    status, content, _ = server.request("POST", address, body, {"content-type": "image/jpeg"})
    assert status == 200, content
    star, wood = demo.encode_text(["a star", "wood"])
    assert ids(json.loads(content)) == ranked(demo, demo.encode_image([path])[0] + star - wood)[:9]


def test_heatmaps_equal_the_library(server: Server, demo: TrainedModel) -> None:
    hit = demo.search(QUERY, k=1)[0]
    phrases = server.post("explain", {"id": hit.id, "text": QUERY})["phrases"]
    assert [QUERY[phrase["start"] : phrase["end"]] for phrase in phrases] == [
        "three red stars",
        "beach",
    ]
    model = HeatmapModel(demo.directory / ONNX, demo.embedder)
    image = base64.b64encode(hit.path.read_bytes()).decode()
    expected = model.heatmaps(image, demo.encode_text(["three red stars"]), SIDE)[0]
    x, y = phrases[0]["point"]
    assert expected[int(y * SIDE), int(x * SIDE)] == pytest.approx(expected.max(), rel=1e-3)
    with Image.open(BytesIO(base64.b64decode(phrases[0]["heatmap"].partition(",")[2]))) as picture:
        opacity = np.asarray(picture.getchannel("A"), float).ravel()
    assert (
        np.corrcoef(opacity, ((expected - expected.min()) / np.ptp(expected)).ravel() ** 3)[0, 1]
        > 0.95
    )


def test_thumbnails_have_a_tag_and_security_headers(server: Server) -> None:
    item = ids(server.search(text=QUERY, k=1))[0]
    status, body, answer = server.get(f"/api/v1/thumbnail?id={item}")
    assert (status, answer.headers["content-type"]) == (200, "image/jpeg")
    with Image.open(BytesIO(body)) as image:
        assert max(image.size) <= 256
    tag = {"if-none-match": answer.headers["etag"]}
    assert server.get(f"/api/v1/thumbnail?id={item}", **tag)[:2] == (304, b"")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["server"] == "bifocal"


def test_the_collection_is_browsed_from_its_last_item(server: Server) -> None:
    pages = [server.post("browse", {"k": 100, "offset": offset}) for offset in (0, 100, 200)]
    found = [item_id for page in pages for item_id in ids(page)]
    assert found == [f"test-{number:05d}" for number in range(255, -1, -1)]
    assert [(page["items"], page["more"]) for page in pages] == [
        (256, True),
        (256, True),
        (256, False),
    ]
    odd = server.post("browse", {"where": {"parity": "odd", "number": {"max": 9}}, "k": 3})
    assert (ids(odd), odd["items"], odd["more"]) == (
        ["test-00009", "test-00007", "test-00005"],
        5,
        True,
    )
    body = json.dumps({"where": {"nothing": 1}}).encode()
    assert server.request("POST", "/api/v1/browse", body, JSON)[0] == 400


def test_an_item_has_its_file_and_the_file_is_sent_as_it_is(
    server: Server, demo: TrainedModel
) -> None:
    path = Path(str(demo.collection.image(42)))
    item = json.loads(server.get("/api/v1/item?id=test-00042")[1])
    assert (item["name"], item["width"], item["height"], item["bytes"]) == (
        path.name,
        128,
        128,
        path.stat().st_size,
    )
    status, body, answer = server.get("/api/v1/original?id=test-00042")
    assert (status, body) == (200, path.read_bytes())
    assert answer.headers["content-type"] == "image/jpeg"
    assert path.name in answer.headers["content-disposition"]
    assert (answer.headers["x-content-type-options"], server.get("/api/v1/original?id=x")[0]) == (
        "nosniff",
        404,
    )


def test_openapi_describes_every_route_and_names_400(server: Server) -> None:
    document = json.loads(server.get("/api/v1/openapi.json")[1])
    paths = {
        "info",
        "search",
        "search/image",
        "explain",
        "browse",
        "item",
        "original",
        "thumbnail",
        "click",
        "correction",
        "comparison",
    }
    models = [f"/models/{{model}}{version}" for version in ("", "/versions/{version}")]
    inference = {"", "/health/live", "/health/ready"}
    inference |= {f"{model}{end}" for model in models for end in ("", "/ready", "/infer")}
    others = {"/healthz", "/readyz", "/metrics", *(f"/v2{path}" for path in inference)}
    assert {f"/api/v1/{path}" for path in paths} | others == set(document["paths"])
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert "422" not in operation["responses"], path
            assert "400" in operation["responses"], path


def test_information_names_what_the_page_needs(server: Server) -> None:
    information = json.loads(server.get("/api/v1/info")[1])
    assert information["languages"] == ["en"]
    assert (information["items"], information["explains"], information["accepts_images"]) == (
        256,
        True,
        True,
    )
    assert len(information["examples"]) == 6
    assert all(len(ids(server.search(text=text, k=1))) == 1 for text in information["examples"][:2])


def test_metrics_and_log_count_requests_and_keep_queries_secret(server: Server) -> None:
    secret = "a secret green cross"
    server.search(text=secret, k=3)
    text = server.get("/metrics")[1].decode()
    assert 'bifocal_request_seconds_count{route="/api/v1/search",status="200"}' in text
    assert "bifocal_items 256.0" in text
    assert secret not in server.log.read_text()
    entry = [entry for entry in server.entries() if entry.get("route") == "/api/v1/search"][-1]
    assert (entry["status"], entry["results"], entry["event"]) == (200, 3, "request")
    assert entry["ms"] > 0


def test_a_deleted_item_is_in_no_answer_and_stays_deleted(
    demo: TrainedModel, tmp_path: Path
) -> None:
    run = write_run(demo, tmp_path / "run")
    with running_server(run) as server:
        item = "test-00200"
        assert item in [
            found
            for start in (0, 100, 200)
            for found in ids(server.search(text="ring", k=100, offset=start))
        ]
        server.get(f"/api/v1/thumbnail?id={item}")
        assert server.request("DELETE", f"/api/v1/item?id={item}")[0] == 403
        assert server.delete("no such item") == 404
        assert server.delete(item) == 204
        assert item not in [
            found
            for start in (0, 100, 200)
            for found in ids(server.search(text="ring", k=100, offset=start))
        ]
        gone = json.dumps({"id": item, "text": "ring"}).encode()
        answers = [
            *(
                server.get(f"/api/v1/{route}?id={item}")
                for route in ("thumbnail", "original", "item")
            ),
            server.request("POST", "/api/v1/explain", gone, JSON),
            server.request("POST", "/api/v1/search", json.dumps({"like": item}).encode(), JSON),
        ]
        assert [status for status, _, _ in answers] == [404] * 5
        assert item not in ids(server.post("browse", {"k": 100}))
        assert server.search(text="ring", k=1)["items"] == 255
        assert server.delete(item) == 404
    with running_server(run) as server:
        assert server.delete(item) == 404


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\\\[]{},:\n'),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(value=VALUES)
def test_small_bodies_are_parsed(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


def test_elements_are_limited_and_characters_of_strings_are_not() -> None:
    assert parse_json(json.dumps("," * 10**6 + '"' * 10**6).encode()).count(",") == 10**6
    assert len(parse_json(json.dumps([0] * (MAX_ELEMENTS - 1)).encode())) == MAX_ELEMENTS - 1
    for body in (
        json.dumps([0] * (MAX_ELEMENTS + 1)),
        json.dumps(["\\"] * (2 * MAX_ELEMENTS + 1)),
        "[" * MAX_ELEMENTS,
    ):
        with pytest.raises(HTTPException) as refusal:
            parse_json(body.encode())
        assert refusal.value.status_code == 400


def test_levels_are_limited() -> None:
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(HTTPException, match="levels"):
        parse_json(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize("piece", [b'"', b'\\"', b"\\", b'"\\\\"', b'"\\', b"a", b"[", b"{", b":"])
def test_the_time_is_linear(piece: bytes) -> None:
    start = time.process_time()
    with pytest.raises((HTTPException, ValueError)):
        parse_json(b'"' + piece * (4_000_000 // len(piece)))
    assert time.process_time() - start < 5
