"""Who may call the service, how often, and with what bodies."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.testclient import TestClient

from bifocal.datasets.corrections import read_corrections
from bifocal.serving.service.admission import Admission, RateLimit, network_of
from bifocal.serving.service.models import RunSource
from bifocal.serving.service.observation import Metrics
from bifocal.serving.service.settings import Settings, read_keys
from tests.bifocal.serving.runs import LoadedSource
from tests.bifocal.serving.service.clients import SEARCH, client


def test_requests_at_a_time_are_limited(
    source: LoadedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(source, max_requests=1) as opened:
        entered, leave = threading.Event(), threading.Event()
        slow_query = {
            "text": "a",
            "group": "parity",
        }  # a query without a group is answered in the event loop
        search = source.served.search.rank

        def slow(*arguments: object) -> object:
            entered.set()
            leave.wait(30)
            return search(*arguments)

        monkeypatch.setattr(source.served.search, "rank", slow)
        statuses: list[int] = []
        first = threading.Thread(
            target=lambda: statuses.append(opened.post(SEARCH, json=slow_query).status_code)
        )
        first.start()
        assert entered.wait(30)
        assert opened.post(SEARCH, json={"text": "a"}).status_code == 429
        assert opened.get("/healthz").status_code == 200
        leave.set()
        first.join()
        assert statuses == [200]


def test_an_address_has_a_part_of_all_requests(source: LoadedSource) -> None:
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


@pytest.fixture(scope="module")
def guarded(run_folder: Path) -> Iterator[TestClient]:
    """A client of a service with keys, and a model of its own, of which a test deletes an item."""
    settings = {
        "api_keys": frozenset(["blue"]),
        "admin_key": "red",
        "origins": ("https://mine.example",),
    }
    with client(LoadedSource(RunSource(run_folder).load()), **settings) as opened:
        yield opened


def test_a_key_is_needed_for_data_and_not_for_page_and_probes(guarded: TestClient) -> None:
    for path in ("/api/v1/info", "/metrics", "/api/v1/openapi.json", "/v2/models/bifocal"):
        assert guarded.get(path).status_code == 401
        assert guarded.get(path).headers["www-authenticate"] == "Bearer"
        for key, status in (("blue", 200), ("red", 200), ("green", 401), ("", 401), ("blu", 401)):
            assert (
                guarded.get(path, headers={"authorization": f"Bearer {key}"}).status_code == status
            )
        assert guarded.get(path, headers={"authorization": "Basic blue"}).status_code == 401
    assert guarded.post("/v2/models/bifocal/infer", json={}).status_code == 401
    for path in (
        "/",
        "/page/page.js",
        "/healthz",
        "/readyz",
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
    ):
        assert guarded.get(path).status_code == 200


def test_metrics_need_no_key_if_the_settings_say_so(source: LoadedSource) -> None:
    with client(source, api_keys=frozenset(["blue"]), open_metrics=True) as opened:
        assert "bifocal_items" in opened.get("/metrics").text
        assert [
            opened.get(path).status_code for path in ("/api/v1/info", "/metrics/", "/metricsx")
        ] == [401] * 3


def test_only_the_admin_key_deletes(guarded: TestClient) -> None:
    address = "/api/v1/item?id=test-00007"
    assert guarded.delete(address, headers={"authorization": "Bearer blue"}).status_code == 403
    assert guarded.delete(address, headers={"authorization": "Bearer red"}).status_code == 204
    assert guarded.get(address, headers={"authorization": "Bearer red"}).status_code == 404


def test_corrections_need_the_admin_key_and_a_file(source: LoadedSource, tmp_path: Path) -> None:
    address, file = "/api/v1/correction", tmp_path / "corrections.csv"
    body = {"item": "test-00005", "text": "a  carrot", "right": False}
    red, blue = ({"authorization": f"Bearer {key}"} for key in ("red", "blue"))
    keys = {"api_keys": frozenset(["blue"]), "admin_key": "red"}
    with client(source, **keys, corrections=file) as opened:
        assert opened.get("/api/v1/info", headers=blue).json()["corrects"]
        for headers, status in (({}, 401), (blue, 401), (red, 204)):
            assert opened.post(address, json=body, headers=headers).status_code == status
        for change, status in (({"item": "no"}, 404), ({"text": " "}, 400), ({"when": 1}, 400)):
            answer = opened.post(address, json=body | change, headers=red)
            assert answer.status_code == status
    assert read_corrections(file) == ({("test-00005", "a carrot"): False}, [])
    with client(source, **keys) as opened:
        assert opened.post(address, json=body, headers=red).status_code == 403
        assert not opened.get("/api/v1/info", headers=blue).json()["corrects"]


def test_original_files_are_sent_only_if_the_settings_say_so(guarded: TestClient) -> None:
    address, key = "/api/v1/original?id=test-00005", {"authorization": "Bearer blue"}
    assert guarded.get(address).status_code == 401
    assert guarded.get(address, headers=key).status_code == 403
    assert not guarded.get("/api/v1/info", headers=key).json()["originals"]


def test_only_configured_origins_may_call(guarded: TestClient) -> None:
    request = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    for origin, allowed in (("https://mine.example", True), ("https://evil.example", False)):
        answer = guarded.options(SEARCH, headers={"origin": origin, **request})
        assert (answer.headers.get("access-control-allow-origin") == origin) is allowed
        refused = guarded.get("/api/v1/info", headers={"origin": origin})
        assert refused.status_code == (401 if allowed else 403)
        assert ("access-control-allow-origin" in refused.headers) is allowed


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "http://localhost"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site", "origin": "http://other.localhost"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://["}, False),
        ({"origin": "http://a]b"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://mine.example"}, True),
    ],
)
def test_requests_for_pages_of_other_sites_are_refused(
    guarded: TestClient, headers: dict[str, str], allowed: bool
) -> None:
    key = {"authorization": "Bearer blue"}
    for method, path in (
        ("GET", "/api/v1/info"),
        ("POST", SEARCH),
        ("POST", "/v2/models/bifocal/infer"),
    ):
        answer = guarded.request(
            method, path, headers=headers | key, json={"text": "a"} if method == "POST" else None
        )
        assert (answer.status_code != 403) is allowed
    assert guarded.get("/healthz", headers=headers).status_code == 200


def test_an_open_service_accepts_addresses_and_listed_names(source: LoadedSource) -> None:
    with client(source, hosts=("localhost",), addresses=True) as opened:
        for host, accepted in (
            ("10.0.0.7:8080", True),
            ("[::1]:8080", True),
            ("localhost", True),
            ("evil.example", False),
        ):
            for path in ("/", "/healthz", "/api/v1/info"):
                assert (opened.get(path, headers={"host": host}).status_code == 200) is accepted


@pytest.mark.parametrize("value", ["", " ", ",", " , "])
@pytest.mark.parametrize("name", ["BIFOCAL_API_KEYS", "BIFOCAL_ADMIN_KEY"])
def test_an_empty_list_of_keys_is_an_error(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is set but has no key"):
        read_keys({name: value})


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.2, 5))
def test_a_client_never_exceeds_its_rate(pauses: list[float], rate: float) -> None:
    limit, moments = RateLimit(rate), np.cumsum(pauses)
    allowed = [moment for moment in moments if limit.wait("client", float(moment)) == 0]
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            assert (
                last - first + 1
                <= max(1, 2 * rate) + rate * (allowed[last] - allowed[first]) + 1e-6
            )
    assert limit.wait("another", float(moments[-1]) if len(moments) else 0.0) == 0


def test_requests_per_second_are_limited_for_each_key(source: LoadedSource) -> None:
    keys = frozenset(["blue", "green"])
    with client(source, api_keys=keys, requests_per_second=0.01) as opened:
        statuses = [
            opened.get("/api/v1/info", headers={"authorization": "Bearer blue"}) for _ in range(3)
        ]
        assert [answer.status_code for answer in statuses] == [200, 429, 429]
        assert int(statuses[-1].headers["retry-after"]) > 50
        assert (
            opened.get("/api/v1/info", headers={"authorization": "Bearer green"}).status_code == 200
        )


def test_invented_keys_have_the_rate_of_their_address(source: LoadedSource) -> None:
    keys = {"api_keys": frozenset(["blue"]), "requests_per_second": 0.01}
    for settings, first in (({"requests_per_second": 0.01}, 200), (keys, 401)):
        with client(source, **settings) as opened:
            invented = [
                {"authorization": f"Bearer {number}", "x-forwarded-for": f"10.0.0.{number}"}
                for number in range(5)
            ]
            statuses = [
                opened.get("/api/v1/info", headers=headers).status_code for headers in invented
            ]
            assert statuses == [first, 429, 429, 429, 429]


def test_wrong_keys_are_throttled_and_a_missing_one_is_no_guess(source: LoadedSource) -> None:
    with client(source, api_keys=frozenset(["blue"])) as opened:
        assert [opened.get("/api/v1/info").status_code for _ in range(40)] == [401] * 40
        guesses = [
            opened.get("/api/v1/info", headers={"authorization": f"Bearer {n}"}).status_code
            for n in range(40)
        ]
        assert guesses == [401] * 20 + [429] * 20
        right = {"authorization": "Bearer blue"}
        assert opened.get("/api/v1/info", headers=right).status_code == 200
        assert opened.get("/healthz").status_code == 200


@given(
    keys=st.lists(
        st.text(
            st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","),
            min_size=1,
            max_size=40,
        ),
        min_size=1,
        max_size=4,
        unique=True,
    ),
    name=st.sampled_from(["BIFOCAL_API_KEYS", "BIFOCAL_ADMIN_KEY"]),
)
def test_short_keys_are_refused_at_the_start(keys: list[str], name: str) -> None:
    keys = keys[:1] if name == "BIFOCAL_ADMIN_KEY" else keys
    environment = {name: ", ".join(keys)}
    if min(map(len, keys)) < 22:
        with pytest.raises(ValueError, match=f"{name} has a key of .* expected at least 22"):
            read_keys(environment)
    else:
        assert {*read_keys(environment)[0], read_keys(environment)[1]} - {None} == set(keys)


@pytest.mark.parametrize("name", ["host", "authorization", "origin", "sec-fetch-site"])
@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/info", "/metrics"])
def test_a_header_that_decides_is_there_once(source: LoadedSource, name: str, path: str) -> None:
    headers = [("Host", "localhost"), (name, "localhost"), (name.upper(), "localhost")]
    with client(source) as opened:
        answer = opened.get(path, headers=headers[name == "host" :])
    assert (answer.status_code, name in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("texts", "counted"),
    [
        (
            ("9.9.9.2", "9.9.9.2:1001", "9.9.9.2:1002", "::ffff:9.9.9.2", "[::ffff:9.9.9.2]:7"),
            "9.9.9.2",
        ),
        (("2001:db8::1", "[2001:db8::2]", "[2001:db8::3]:1001"), "2001:db8::/64"),
        (("", "unknown", "a:b", "9.9.9.2:x", "9.9.9:1", "\xff", "::::"), ""),
    ],
)
def test_a_client_is_counted_once_in_all_spellings(texts: tuple[str, ...], counted: str) -> None:
    assert {network_of(text) for text in texts} == {counted}


def test_requests_of_the_event_loop_take_turns() -> None:
    """The app holds each request until it is released: a second client is answered next, though the
    first one has many more waiting."""
    order, waiting = [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        order.append(scope["client"][0])
        released = asyncio.get_running_loop().create_future()
        waiting.append(released)
        await released
        await Response("")(scope, receive, send)

    async def send(_: Any) -> None:
        pass

    def scope(address: str, path: str) -> dict[str, Any]:
        return {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": b"",
            "headers": [],
            "client": (address, 1),
        }

    async def run() -> None:
        admission = Admission(app, Settings(), Metrics())
        first, second = "10.0.0.1", "10.0.0.2"
        asked = [(first, "/api/v1/openapi.json")] * 20 + [
            (second, "/"),
            (first, "/healthz"),
            (first, "/api/v1/thumbnail"),
        ]
        tasks = [asyncio.create_task(admission(scope(*one), send, send)) for one in asked]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.001)
            assert sum(not held.done() for held in waiting) <= 3
            for held in waiting:
                if not held.done():
                    held.set_result(None)
                    break
        await asyncio.gather(*tasks)
        assert order[:3].count(first) == 3  # the first one, a probe, and work that threads do
        assert second in order[3:5]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (asyncio.CancelledError(), 503, "the service ends"),
        (type("PanicException", (BaseException,), {})("of Rust"), 500, "the service failed"),
    ],
)
def test_whatever_ends_a_request_it_has_an_answer(
    error: BaseException, status: int, reason: str
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def fail(*arguments: Any) -> None:
        raise error

    scope = {
        "type": "http",
        "path": "/",
        "method": "GET",
        "query_string": b"",
        "headers": [],
        "client": ("a", 1),
    }
    asyncio.run(Admission(fail, Settings(), Metrics())(scope, fail, send))
    assert sent[0]["status"] == status
    assert reason in sent[1]["body"].decode()


def test_the_query_of_an_address_has_a_limit_before_it_is_decoded(source: LoadedSource) -> None:
    with client(source) as opened:
        path = "/healthz?a="
        assert opened.get(path + "%41" * (8190 // 3)).status_code == 200
        assert opened.get(path + "%41" * (8193 // 3)).status_code == 414
