"""Rates of clients, by key or by address."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bifocal.serving.service.routes.rates import RateLimit
from tests.bifocal.serving.runs import LoadedSource
from tests.bifocal.serving.service.clients import client


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.2, 5))
def test_a_client_never_exceeds_its_rate(pauses: list[float], rate: float) -> None:
    limit, moments = RateLimit(rate), np.cumsum(pauses)
    allowed = [moment for moment in moments if limit.wait("client", float(moment)) == 0]
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= max(1, 2 * rate) + rate * (allowed[last] - allowed[first]) + 1e-6
    assert limit.wait("another", float(moments[-1]) if len(moments) else 0.0) == 0


def test_requests_per_second_are_limited_for_each_key(source: LoadedSource) -> None:
    keys = frozenset(["blue", "green"])
    with client(source, api_keys=keys, requests_per_second=0.01) as opened:
        statuses = [opened.get("/api/v1/info", headers={"authorization": "Bearer blue"}) for _ in range(3)]
        assert [answer.status_code for answer in statuses] == [200, 429, 429]
        assert int(statuses[-1].headers["retry-after"]) > 50
        assert opened.get("/api/v1/info", headers={"authorization": "Bearer green"}).status_code == 200


def test_invented_keys_have_the_rate_of_their_address(source: LoadedSource) -> None:
    keys = {"api_keys": frozenset(["blue"]), "requests_per_second": 0.01}
    for settings, first in (({"requests_per_second": 0.01}, 200), (keys, 401)):
        with client(source, **settings) as opened:
            invented = [
                {"authorization": f"Bearer {number}", "x-forwarded-for": f"10.0.0.{number}"} for number in range(5)
            ]
            statuses = [opened.get("/api/v1/info", headers=headers).status_code for headers in invented]
            assert statuses == [first, 429, 429, 429, 429]


def test_wrong_keys_are_throttled_and_a_missing_one_is_no_guess(source: LoadedSource) -> None:
    with client(source, api_keys=frozenset(["blue"])) as opened:
        assert [opened.get("/api/v1/info").status_code for _ in range(40)] == [401] * 40
        guesses = [opened.get("/api/v1/info", headers={"authorization": f"Bearer {n}"}).status_code for n in range(40)]
        assert guesses == [401] * 20 + [429] * 20
        assert opened.get("/api/v1/info", headers={"authorization": "Bearer blue"}).status_code == 429
        assert opened.get("/healthz").status_code == 200
