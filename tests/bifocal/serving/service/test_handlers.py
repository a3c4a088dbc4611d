"""Answers: modes, filters, groups, relevance, no model, and items that are deleted from the
collection on disk."""

import json
import math
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import DESCRIPTION, ITEMS
from bifocal.search.index.build import index_of_collection
from bifocal.search.keywords import Keywords
from bifocal.search.trained_model import TrainedModel
from bifocal.serving.service import handlers, pictures
from bifocal.serving.service.app import create_app
from bifocal.serving.service.live import Deletions
from bifocal.serving.service.models import RunSource
from bifocal.serving.service.settings import Settings
from tests.bifocal.serving.runs import COLLECTION, SIDE, LoadedSource, write_run
from tests.bifocal.serving.service.clients import SEARCH, client


def test_filters_restrict_the_results(source: LoadedSource) -> None:
    with client(source) as opened:
        query = {
            "text": "a red star",
            "k": 100,
            "where": {"parity": "odd", "number": {"min": 100, "max": 151}},
        }
        results = opened.post(SEARCH, json=query).json()["results"]
        assert sorted(result["metadata"]["number"] for result in results) == list(
            range(101, 152, 2)
        )
        columns = opened.get("/api/v1/info").json()["columns"]
        assert columns == [
            {"name": "number", "kind": "number", "values": []},
            {"name": "parity", "kind": "text", "values": ["even", "odd"]},
        ]
        refused = opened.post(SEARCH, json=query | {"where": {"paritty": "odd"}})
        assert refused.status_code == 400
        assert "parity" in refused.json()["error"]


def test_results_of_a_calibrated_index_are_relevant_or_maybe(
    source: LoadedSource, run_folder: Path, tmp_path: Path
) -> None:
    index = index_of_collection(Collection.open(run_folder / COLLECTION), None)
    # The probability is 0.5 at the score 0.4, and reaches the threshold at 0.261.
    index.calibration = Calibration(
        -4.0,
        10.0,
        0.0,
        threshold=0.2,
        error=0,
        false_positive_rate=0,
        recall=1,
        queries=1,
        certain=0.5,
    )
    index.write(tmp_path)
    app = create_app(RunSource(run_folder, index=tmp_path), Settings())
    with TestClient(app, base_url="http://localhost") as opened:
        query = {"text": "three red stars on a beach", "k": 100}
        answer = opened.post(SEARCH, json=query).json()
        results = answer["results"]
        with client(source) as exact:
            uncalibrated = exact.post(SEARCH, json=query).json()
        assert [result["score"] for result in results] == [
            result["score"] for result in uncalibrated["results"]
        ]
        assert answer["found"]
        assert uncalibrated["found"]
        for result in results:
            assert result["probability"] == pytest.approx(
                1 / (1 + math.exp(4 - 10 * result["score"])), abs=1e-4
            )
            assert result["relevance"] == ("found" if result["score"] >= 0.4 else "perhaps")
        assert {result["relevance"] for result in results} == {"found", "perhaps"}
        other = opened.post(SEARCH, json=query | {"where": {"number": 3}}).json()
        assert other["results"][0]["score"] < 0.26137
        assert not other["found"]
        assert {result["relevance"] for result in other["results"]} == {"nothing"}
        assert opened.post(SEARCH, json=query | {"k": 5, "offset": 90}).json()[
            "found"
        ]  # a later page is not judged
        assert "bifocal_nothing_found_total 1.0" in opened.get("/metrics").text
        similar = opened.post(SEARCH, json={"like": "test-00003"}).json()
        assert {result["relevance"] for result in similar["results"]} == {None}
        assert similar["found"]


def test_without_a_model_it_is_alive_but_not_ready(tmp_path: Path) -> None:
    with TestClient(create_app(RunSource(tmp_path), Settings())) as opened:
        assert opened.get("/healthz").status_code == 200
        assert opened.get("/readyz").status_code == 503
        answer = opened.post(SEARCH, json={"text": "a"})
        assert answer.status_code == 503
        assert "see the log" in answer.json()["error"]
        assert (
            str(tmp_path)
            not in answer.text + opened.get("/readyz").text + opened.get("/v2/health/ready").text
        )


QUERY = "three red stars on a beach"


@pytest.fixture(scope="module")
def opened(run_folder: Path) -> Iterator[TestClient]:
    with TestClient(
        create_app(RunSource(run_folder), Settings()), base_url="http://localhost"
    ) as service:
        yield service


def search(opened: TestClient, **query: Any) -> list[dict]:
    answer = opened.post("/api/v1/search", json=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def ids(results: list[dict]) -> list[str]:
    return [result["id"] for result in results]


def test_words_and_vectors_are_fused_by_their_ranks(opened: TestClient, run_folder: Path) -> None:
    collection = Collection.open(run_folder / COLLECTION)
    sentence = "even star"  # a word of the metadata, and one of the captions
    by_vector = [
        hit["id"]
        for start in (0, 100, 200)
        for hit in search(opened, text=sentence, k=100, offset=start)
    ]
    by_words = [collection.ids[row] for row in Keywords.of(collection.items).search(sentence, 1000)]
    sums = {item: 1 / (61 + rank) for rank, item in enumerate(by_vector)}
    for rank, item in enumerate(by_words):
        sums[item] += 1 / (61 + rank)
    expected = sorted(sums, key=lambda item: (-sums[item], item))
    assert expected != by_vector
    pages = [search(opened, text=sentence, mode="hybrid", k=20, offset=start) for start in (0, 20)]
    assert [item for page in pages for item in ids(page)] == expected[:40]
    odd = search(opened, text=sentence, mode="hybrid", where={"parity": "odd"})
    assert {result["metadata"]["parity"] for result in odd} == {"odd"}


def test_words_find_items_below_the_threshold_of_the_vectors(
    run_folder: Path, tmp_path: Path
) -> None:
    index = index_of_collection(Collection.open(run_folder / COLLECTION), None)
    index.calibration = Calibration(
        -40.0, 1.0, 0.0, threshold=0.9, error=0, false_positive_rate=0, recall=1, queries=1
    )
    index.write(tmp_path)
    app = create_app(RunSource(run_folder, index=tmp_path), Settings())
    with TestClient(app, base_url="http://localhost") as opened:
        assert not opened.post("/api/v1/search", json={"text": "star"}).json()["found"]
        found = search(opened, text="odd", mode="hybrid", k=5)
        assert {result["metadata"]["parity"] for result in found} == {"odd"}
        assert {result["relevance"] for result in found} == {"perhaps"}


def test_a_region_comes_back_with_its_box(
    opened: TestClient, run_folder: Path, demo: TrainedModel
) -> None:
    collection, phrase = (
        Collection.open(run_folder / COLLECTION),
        demo.encode_text(["a red star"])[0],
    )
    best: dict[str, tuple[float, list[float]]] = {}
    for row, item in enumerate(collection.ids):
        vectors, boxes = collection.regions(row)
        scores = [float(np.dot(vector.astype(np.float64), phrase)) for vector in vectors]
        region = max(range(len(scores)), key=scores.__getitem__)
        best[item] = scores[region], (boxes[region] / SIDE).tolist()
    expected = sorted(best, key=lambda item: -best[item][0])
    found = search(opened, text="a red star", mode="regions", k=9, offset=3)
    assert ids(found) == expected[3:12]
    for result in found:
        score, box = best[result["id"]]
        assert result["score"] == pytest.approx(score, rel=1e-3)
        assert result["box"] == pytest.approx(box)
    some = search(opened, text="a red star", mode="regions", where={"number": {"max": 7}}, k=100)
    assert {result["metadata"]["number"] for result in some} == set(range(8))
    assert search(opened, text="a red star", k=1)[0]["box"] is None


@pytest.mark.parametrize("mode", ["vectors", "hybrid", "regions"])
def test_results_of_a_group_are_limited_on_all_pages(opened: TestClient, mode: str) -> None:
    everything = search(opened, text=QUERY, mode=mode, k=100)
    expected: list[str] = []
    for parity in ("even", "odd"):
        expected += [
            result["id"] for result in everything if result["metadata"]["parity"] == parity
        ][:3]
    expected.sort(key=ids(everything).index)
    query = {"text": QUERY, "mode": mode, "group": "parity", "per_group": 3}
    assert ids(search(opened, **query)) == expected
    assert ids(search(opened, **query, k=2, offset=3)) == expected[3:5]
    refused = opened.post("/api/v1/search", json=query | {"group": "party"})
    assert (refused.status_code, "did you mean 'parity'" in refused.json()["error"]) == (400, True)


def test_modes_need_a_sentence_alone_and_a_collection_that_has_them(
    opened: TestClient, demo: TrainedModel, tmp_path: Path
) -> None:
    assert opened.get("/api/v1/info").json()["modes"] == ["vectors", "hybrid", "regions"]
    for other in ({"like": "test-00003"}, {"plus": ["snow"]}, {"minus": ["snow"]}):
        refused = opened.post("/api/v1/search", json={"text": "a star", "mode": "hybrid"} | other)
        assert refused.status_code == 400
    assert (
        opened.post("/api/v1/search", json={"text": "a star", "mode": "words"}).status_code == 400
    )
    without = create_app(RunSource(write_run(demo, tmp_path / "run")), Settings())
    with TestClient(without, base_url="http://localhost") as opened:
        assert opened.get("/api/v1/info").json()["modes"] == ["vectors", "hybrid"]
        assert (
            opened.post("/api/v1/search", json={"text": "a star", "mode": "regions"}).status_code
            == 409
        )


def test_an_item_deleted_from_the_collection_is_in_no_answer_before_the_index_is_built_again(
    run_folder: Path, tmp_path: Path
) -> None:
    index_of_collection(Collection.open(run_folder / COLLECTION), None).write(tmp_path)
    previous = RunSource(run_folder, index=tmp_path).load()
    folder = Path(shutil.copytree(run_folder / COLLECTION, tmp_path / "collection"))
    rows = pq.read_table(folder / ITEMS).to_pandas()
    first = rows["item_id"] == "test-00011"
    rows.loc[first, "deleted"] = True
    rows.loc[first, ["shard", "row"]] = -1
    schema = pq.read_schema(folder / ITEMS)
    pq.write_table(
        type(previous.index.items).from_pandas(rows, schema, preserve_index=False), folder / ITEMS
    )
    description = json.loads((folder / DESCRIPTION).read_text())
    (folder / DESCRIPTION).write_text(json.dumps(description | {"items": 255, "deleted": 1}))
    source = RunSource(run_folder, folder, tmp_path)
    with TestClient(create_app(source, Settings()), base_url="http://localhost") as opened:
        assert opened.get("/api/v1/info").json()["items"] == 255
        for mode in ("vectors", "hybrid", "regions"):
            pages = [
                search(opened, text=QUERY, mode=mode, k=100, offset=start)
                for start in (0, 100, 200)
            ]
            found = [item for page in pages for item in ids(page)]
            assert len(found) == 255
            assert "test-00011" not in found
        for path in ("item", "thumbnail"):
            assert opened.get(f"/api/v1/{path}?id=test-00011").status_code == 404
    assert "test-00011" in previous.index


def test_a_registry_that_hangs_delays_no_search(
    source: LoadedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hanging(Deletions):
        def add(self, item_id: str) -> None:
            entered.set()
            leave.wait(20)

    entered, leave = threading.Event(), threading.Event()
    monkeypatch.setattr(handlers, "WRITE_SECONDS", 0.5)
    settings = Settings(admin_key="red", threads=1)
    with TestClient(create_app(source, settings, Hanging()), base_url="http://localhost") as opened:
        key = {"authorization": "Bearer red"}
        with ThreadPoolExecutor(3) as threads:
            deleting = [
                threads.submit(opened.delete, f"/api/v1/item?id=test-0000{row}", headers=key)
                for row in range(3)
            ]
            assert entered.wait(20)
            assert (
                opened.post(
                    "/api/v1/search", json={"text": "a star", "group": "parity"}
                ).status_code
                == 200
            )
            assert {answer.result().status_code for answer in deleting} == {503}
        leave.set()


@pytest.mark.parametrize(
    ("place", "method", "route"),
    [
        ("handlers.media_type", "GET", "original?id=test-00003"),
        ("pictures.file_state", "GET", "thumbnail?id=test-00003"),
        ("handlers.split_phrases", "POST", "explain"),
    ],
)
def test_an_image_is_the_file_that_was_opened(
    run_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    method: str,
    route: str,
) -> None:
    """A link that takes the place of the image between two looks is not followed."""
    model, secret = RunSource(run_folder).load(), tmp_path / "secret.jpg"
    source = model.items.file(3)
    assert source is not None
    file = tmp_path / "root" / model.items._value("image", 3)
    file.parent.mkdir(parents=True)
    shutil.copyfile(source, file)
    model.items._folder = tmp_path / "root"
    shutil.copyfile(source, secret)
    content = file.read_bytes()
    module, name = place.split(".")
    owner = {"handlers": handlers, "pictures": pictures}[module]
    looked_at, seen = getattr(owner, name), []

    def exchanged(*arguments: Any) -> Any:
        seen.append(arguments[0])
        found = looked_at(*arguments)
        file.unlink()
        file.symlink_to(secret)
        return found

    monkeypatch.setattr(owner, name, exchanged)
    body = {"id": "test-00003", "text": "a star"} if method == "POST" else None
    with client(LoadedSource(model), originals=True) as opened:
        answers = [opened.request(method, f"/api/v1/{route}", json=body) for _ in range(2)]
        assert opened.get("/api/v1/item?id=test-00003").json()["bytes"] is None
    assert [answer.status_code for answer in answers] == [200 if "original" in route else 404, 404]
    if "original" in route:
        assert answers[0].content == content
        assert [opened_file.closed for opened_file in seen] == [True]
