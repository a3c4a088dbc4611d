"""Stub of the Kubeflow Pipelines API that records requests."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

API = "/apis/v2beta1/"
PAGE = 2


class Kubeflow(BaseHTTPRequestHandler):
    """The endpoints for runs and schedules. Lists have pages of two entries.

    Attributes:
        runs: recurring runs by id.
        calls: method and path of each POST and DELETE.
        submitted: bodies of submitted runs.
        tokens: Authorization header of each submitted run.
    """

    runs: dict[str, dict[str, Any]]
    calls: list[tuple[str, str]]
    submitted: list[dict[str, Any]]
    tokens: list[str | None]
    numbers: Iterator[int]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == API + "recurringruns":
            start = int(parse_qs(url.query).get("page_token", ["0"])[0] or 0)
            page = list(self.runs.values())[start : start + PAGE]
            more = str(start + PAGE) if start + PAGE < len(self.runs) else ""
            self.answer({"recurringRuns": page, "next_page_token": more})
        elif url.path == API + "experiments":
            self.answer({"experiments": []})
        else:
            self.answer({"multi_user": False})

    def do_POST(self) -> None:
        self.calls.append(("POST", self.path))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == API + "recurringruns":
            name = f"id{next(self.numbers)}"
            status = {"ENABLE": "ENABLED", "DISABLE": "DISABLED"}[body["mode"]]
            self.runs[name] = {**body, "recurring_run_id": name, "status": status}
            self.answer(self.runs[name])
        elif self.path == API + "runs" and self.headers["Authorization"] == "Bearer expired":
            self.answer({"message": "token expired"}, status=401)
        elif self.path == API + "runs":
            self.submitted.append(body)
            self.tokens.append(self.headers["Authorization"])
            self.answer({**body, "run_id": f"run{next(self.numbers)}"})
        else:
            self.answer({**body, "experiment_id": "experiment-1"})

    def do_DELETE(self) -> None:
        self.calls.append(("DELETE", self.path))
        del self.runs[self.path.rsplit("/", 1)[1]]
        self.answer({})

    def answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve() -> Iterator[tuple[str, type[Kubeflow]]]:
    """Start a stub; yield its URL and its class, which holds the records."""
    records = {"runs": {}, "calls": [], "submitted": [], "tokens": [], "numbers": count()}
    handler = type("Stub", (Kubeflow,), records)
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}", handler
    http.shutdown()
    http.server_close()
