"""Answers: filters, relevance, and no model."""

import math
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.index.build import index_of_collection
from bifocal.serving.service.app import create_app
from bifocal.serving.service.live.sources import RunSource
from bifocal.serving.service.settings import Settings
from tests.bifocal.serving.runs import COLLECTION, LoadedSource
from tests.bifocal.serving.service.clients import SEARCH, client


def test_filters_restrict_the_results(source: LoadedSource) -> None:
    with client(source) as opened:
        query = {"text": "a red star", "k": 100, "where": {"parity": "odd", "number": {"min": 100, "max": 151}}}
        results = opened.post(SEARCH, json=query).json()["results"]
        assert sorted(result["metadata"]["number"] for result in results) == list(range(101, 152, 2))
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
    index.calibration = Calibration(-4.0, 10.0, 0.0, threshold=0.2, error=0, false_positive_rate=0, recall=1, queries=1)
    index.write(tmp_path)
    app = create_app(RunSource(run_folder, index=tmp_path), Settings())
    with TestClient(app, base_url="http://localhost") as opened:
        query = {"text": "three red stars on a beach", "k": 100}
        answer = opened.post(SEARCH, json=query).json()
        results = answer["results"]
        with client(source) as exact:
            uncalibrated = exact.post(SEARCH, json=query).json()
        assert [result["score"] for result in results] == [result["score"] for result in uncalibrated["results"]]
        assert answer["found"]
        assert uncalibrated["found"]
        for result in results:
            assert result["probability"] == pytest.approx(1 / (1 + math.exp(4 - 10 * result["score"])), abs=1e-4)
            assert result["relevance"] == ("relevant" if result["score"] >= 0.4 else "maybe")
        assert {result["relevance"] for result in results} == {"relevant", "maybe"}
        other = opened.post(SEARCH, json=query | {"where": {"number": 3}}).json()
        assert other["results"][0]["score"] < 0.26137
        assert not other["found"]
        assert opened.post(SEARCH, json=query | {"k": 5, "offset": 90}).json()["found"]  # a later page is not judged
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
        assert str(tmp_path) not in answer.text + opened.get("/readyz").text + opened.get("/v2/health/ready").text
