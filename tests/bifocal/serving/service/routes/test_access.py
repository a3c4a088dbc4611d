"""Keys, hosts, origins: who may call the service."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from bifocal.serving.service.settings import read_keys
from tests.bifocal.serving.runs import LoadedSource
from tests.bifocal.serving.service.clients import SEARCH, client


@pytest.fixture(scope="module")
def guarded(source: LoadedSource) -> Iterator[TestClient]:
    settings = {"api_keys": frozenset(["blue"]), "admin_key": "red", "origins": ("https://mine.example",)}
    with client(source, **settings) as opened:
        yield opened


def test_a_key_is_needed_for_data_and_not_for_page_and_probes(guarded: TestClient) -> None:
    for path in ("/api/v1/info", "/metrics", "/api/v1/openapi.json", "/v2/models/bifocal"):
        assert guarded.get(path).status_code == 401
        assert guarded.get(path).headers["www-authenticate"] == "Bearer"
        for key, status in (("blue", 200), ("red", 200), ("green", 401), ("", 401), ("blu", 401)):
            assert guarded.get(path, headers={"authorization": f"Bearer {key}"}).status_code == status
        assert guarded.get(path, headers={"authorization": "Basic blue"}).status_code == 401
    assert guarded.post("/v2/models/bifocal/infer", json={}).status_code == 401
    for path in ("/", "/page/page.js", "/healthz", "/readyz", "/v2", "/v2/health/live", "/v2/health/ready"):
        assert guarded.get(path).status_code == 200


def test_metrics_need_no_key_if_the_settings_say_so(source: LoadedSource) -> None:
    with client(source, api_keys=frozenset(["blue"]), open_metrics=True) as opened:
        assert "bifocal_items" in opened.get("/metrics").text
        assert [opened.get(path).status_code for path in ("/api/v1/info", "/metrics/", "/metricsx")] == [401] * 3


def test_only_the_admin_key_deletes(guarded: TestClient) -> None:
    address = "/api/v1/item?id=test-00007"
    assert guarded.delete(address, headers={"authorization": "Bearer blue"}).status_code == 403
    assert guarded.delete(address, headers={"authorization": "Bearer red"}).status_code == 204
    assert guarded.get(address, headers={"authorization": "Bearer red"}).status_code == 404


def test_original_files_are_sent_only_if_the_settings_say_so(guarded: TestClient) -> None:
    address, key = "/api/v1/original?id=test-00005", {"authorization": "Bearer blue"}
    assert guarded.get(address).status_code == 401
    assert guarded.get(address, headers=key).status_code == 403
    assert not guarded.get("/api/v1/info", headers=key).json()["originals"]


def test_only_configured_origins_may_call(guarded: TestClient) -> None:
    request = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
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
        ({"sec-fetch-site": "cross-site", "origin": "https://mine.example"}, True),
    ],
)
def test_requests_for_pages_of_other_sites_are_refused(
    guarded: TestClient, headers: dict[str, str], allowed: bool
) -> None:
    key = {"authorization": "Bearer blue"}
    for method, path in (("GET", "/api/v1/info"), ("POST", SEARCH), ("POST", "/v2/models/bifocal/infer")):
        answer = guarded.request(method, path, headers=headers | key, json={"text": "a"} if method == "POST" else None)
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
