"""Reports of simulated clients, and services that answer with them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np

from bifocal.serving.canary.report import GROUPS, ReleaseIdentity, Report

GOOD, BAD = (
    {"relevance": 0.8, "nothing": 0.02, "ms": 10.0},
    {"relevance": 0.6, "nothing": 0.2, "ms": 10.0},
)
RELEASES = [
    ReleaseIdentity(f"bifocal version {number}", number, f"digest {number}") for number in (1, 2)
]


def report_of(
    champion: dict[str, float], candidate: dict[str, float], searches: int = 3000
) -> Report:
    """Return the report of simulated clients."""
    generator, report = np.random.default_rng(0), Report("canary", 0.5, *RELEASES)
    for counts, truth in ((report.counts_champion, champion), (report.counts_candidate, candidate)):
        for group in generator.integers(0, GROUPS, searches):
            if generator.random() < truth.get("errors", 0.0):
                counts.add_error(group)
                continue
            found = generator.random() >= truth["nothing"]
            relevance = min(1.0, truth["relevance"] + 0.1 * generator.normal()) if found else 0.0
            counts.add_answer(
                group, 10 * found, relevance, truth["ms"] / 1000 * generator.lognormal(0, 0.3)
            )
            if generator.random() < truth.get("clicks", 0.0):
                counts.add_click(group)
    return report


@contextmanager
def serve_reports(contents: list[Any]) -> Iterator[list[str]]:
    """Yield the addresses of services that answer with these texts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = int(self.path.split("/")[1])
            found = contents[number] if self.path.endswith("/api/v1/comparison") else None
            body = json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Write nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield [f"http://127.0.0.1:{server.server_port}/{number}" for number in range(len(contents))]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
