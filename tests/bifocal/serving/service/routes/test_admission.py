"""Requests at a time, and bodies."""

import threading

import pytest

from bifocal.onnx.limits import Limits
from tests.bifocal.serving.runs import LoadedSource
from tests.bifocal.serving.service.clients import SEARCH, client


def test_requests_at_a_time_are_limited(source: LoadedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    with client(source, max_requests=1) as opened:
        entered, leave = threading.Event(), threading.Event()
        slow_query = {"text": "a", "group": "parity"}  # a query without a group is answered in the event loop
        search = source.served.search.rank

        def slow(*arguments: object) -> object:
            entered.set()
            leave.wait(30)
            return search(*arguments)

        monkeypatch.setattr(source.served.search, "rank", slow)
        statuses: list[int] = []
        first = threading.Thread(target=lambda: statuses.append(opened.post(SEARCH, json=slow_query).status_code))
        first.start()
        assert entered.wait(30)
        assert opened.post(SEARCH, json={"text": "a"}).status_code == 429
        assert opened.get("/healthz").status_code == 200
        leave.set()
        first.join()
        assert statuses == [200]


def test_an_address_has_a_part_of_all_requests(source: LoadedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    with client(source, max_requests_of_address=0) as opened:
        assert opened.get("/api/v1/info").status_code == 429
        assert opened.get("/readyz").status_code == 200
    with client(source, max_uploads_of_address=0) as opened:
        upload = opened.post(f"{SEARCH}/image", content=b"x", headers={"content-type": "image/png"})
        assert upload.status_code == 429
        assert opened.post(SEARCH, json={"text": "a"}).status_code == 200


def test_an_upload_names_its_type(source: LoadedSource) -> None:
    with client(source) as opened:
        assert opened.post(f"{SEARCH}/image", content=b"x").status_code == 415


def test_pixels_of_uploads_are_limited(source: LoadedSource, demo: object) -> None:
    body = source.served.items.file("test-00000").read_bytes()
    with client(source, limits=Limits(pixels=100)) as opened:
        answer = opened.post(f"{SEARCH}/image", content=body, headers={"content-type": "image/jpeg"})
        assert answer.status_code == 413
        assert "128 x 128" in answer.json()["error"]
