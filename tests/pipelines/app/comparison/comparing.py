"""A service with a second release in this process, and requests to such a service."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import uvicorn

from bifocal.search.query import EncodedQuery, Results
from bifocal.serving.service.app import create_app
from bifocal.serving.service.candidate import Candidate
from bifocal.serving.service.models import SearchRelease
from bifocal.serving.service.settings import Settings
from pipelines.app.serve_sources import CandidateSource, ReleaseSource
from tests.bifocal.serving.server import JSON
from tests.mlflow_server import free_port
from tests.pipelines.releases import move_alias, wait

CHAMPION, CANDIDATE = "models:/bifocal@champion", "models:/bifocal@candidate"
GOOD, BAD = 1, 2
"""Numbers of the versions, see the fixture ``registry``."""
RULE = {
    "searches": 60,
    "min_searches": 50,
    "error_rate": 0.05,
    "max_rises": {"nothing_found": 0.1, "errors": 0.2},
    "max_drops": {"relevance": 0.1},
    "max_ratios": {"latency_p50": 50.0},
}


def name_releases(champion: int, candidate: int) -> None:
    move_alias(champion)
    move_alias(candidate, "candidate")


def search(address: str, client: str, **query: Any) -> Any:
    return post(address, "search", {"k": 10, **query}, client)


def post(address: str, path: str, content: Any, client: str = "") -> Any:
    headers = {**JSON, "bifocal-client": client}
    with urlopen(
        Request(f"{address}/api/v1/{path}", json.dumps(content).encode(), headers), timeout=60
    ) as answer:
        return json.loads(answer.read() or b"null")


def relevance(answer: Any) -> float:
    return float(answer["results"][0]["probability"]) if answer["results"] else 0.0


def comparison(address: str) -> Any:
    with urlopen(f"{address}/api/v1/comparison", timeout=60) as answer:
        return json.load(answer)


class Damaged(CandidateSource):
    """A candidate that fails on some sentences, and waits on others."""

    go = threading.Event()

    def load(self) -> SearchRelease:
        model = super().load()
        rank = model.search.rank

        def search(query: EncodedQuery, k: int, offset: int = 0) -> Results:
            if query.sentence == "a failing star":
                raise RuntimeError("damaged")
            if query.sentence == "a waiting star":
                self.go.wait(60)
            return rank(query, k, offset)

        vars(model.search)["rank"] = search
        return model


@contextmanager
def serve(mode: Any, share: float) -> Iterator[str]:
    """Yield the address of a service that compares with a damaged candidate."""
    champion, port = ReleaseSource(CHAMPION, None), free_port()
    candidate = Candidate(Damaged(CANDIDATE, champion, None), mode, share)
    app = create_app(champion, Settings(), poll_seconds=0.2, candidate=candidate)
    running = uvicorn.Server(
        uvicorn.Config(app, port=port, log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        wait(lambda: running.started)
        wait(lambda: comparison(f"http://127.0.0.1:{port}")["state"] == "running")
        yield f"http://127.0.0.1:{port}"
    finally:
        Damaged.go.set()
        running.should_exit = True
        thread.join()
