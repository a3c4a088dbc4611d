"""Stub of the Kubeflow Pipelines API that answers as the server of version 2.17
(backend/src/apiserver).

It records requests. With several users, each request needs an identity and each resource a
namespace of that user, as in ``resource_manager.go:2573 IsAuthorized`` and the ``canAccess...``
functions of ``server/``.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

API = "/apis/v2beta1/"
PAGE = 2
INVALID, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, CONFLICT = 400, 401, 403, 404, 409


class Rejection(Exception):
    """Answer with an error.

    Args:
        status: HTTP status.
        message: of the body.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Kubeflow(BaseHTTPRequestHandler):
    """The endpoints for experiments, pipelines, runs and schedules. Lists have pages of two
    entries.

    Attributes:
        users: identity of each token or cookie, of a server with several users; empty for one user.
        namespaces: namespaces of each user.
        schedules, experiments, pipelines, versions, runs: entries by id.
        calls: method and path of each POST and DELETE.
        submitted: bodies of submitted runs.
        tokens: Authorization header of each submitted run.
    """

    users: dict[str, str]
    namespaces: dict[str, set[str]]
    schedules: dict[str, dict[str, Any]]
    experiments: dict[str, dict[str, Any]]
    pipelines: dict[str, dict[str, Any]]
    versions: dict[str, dict[str, Any]]
    runs: dict[str, dict[str, Any]]
    calls: list[tuple[str, str]]
    submitted: list[dict[str, Any]]
    tokens: list[str | None]
    numbers: Iterator[int]

    def do_GET(self) -> None:
        self.handle_request(self.get)

    def do_POST(self) -> None:
        self.calls.append(("POST", urlsplit(self.path).path))
        self.handle_request(self.post)

    def do_DELETE(self) -> None:
        self.calls.append(("DELETE", self.path))
        self.handle_request(self.delete)

    def handle_request(self, method: Any) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.answer(method(url.path.removeprefix(API)))
        except Rejection as error:
            self.answer({"error": str(error), "message": str(error)}, error.status)

    def get(self, path: str) -> dict[str, Any]:
        if path == "recurringruns":
            namespace = self.authorize(self.query.get("namespace", ""), "recurring run")
            return self.page("recurringRuns", self.schedules, namespace)
        if path == "runs":
            namespace = self.authorize(self.query.get("namespace", ""), "run")
            schedule, states = json.loads(self.query["filter"])["predicates"]
            found = {
                key: run
                for key, run in self.runs.items()
                if run["recurring_run_id"] == schedule["stringValue"]
                and run["state"] in states["stringValues"]["values"]
            }
            return {"runs": list(found.values())}
        if path == "experiments":
            namespace = self.authorize(self.query.get("namespace", ""), "experiment")
            return self.page("experiments", self.experiments, namespace)
        if path == "pipelines":
            # Everybody may read shared pipelines, which have no namespace.
            namespace = self.query.get("namespace", "") if self.users else ""
            return self.page(
                "pipelines",
                self.pipelines,
                self.authorize(namespace, "pipeline") if namespace else "",
            )
        if path.startswith("pipelines/") and path.endswith("/versions"):
            pipeline = path.split("/")[1]
            own = {
                key: entry
                for key, entry in self.versions.items()
                if entry["pipeline_id"] == pipeline
            }
            return self.page("pipeline_versions", own, "")
        if path == "healthz":
            return {"multi_user": bool(self.users)}
        raise Rejection(NOT_FOUND, path)

    def post(self, path: str) -> dict[str, Any]:
        if path in ("pipelines/upload", "pipelines/upload_version"):
            return self.upload(path)
        if path.endswith(":disable"):
            self.schedules[path.removeprefix("recurringruns/").removesuffix(":disable")][
                "status"
            ] = "DISABLED"
            return {}
        body = json.loads(self.body)
        if path == "experiments":
            body["namespace"] = self.authorize(body.get("namespace", ""), "experiment")
            return self.add(self.experiments, body, "experiment")
        experiment = self.experiments.get(body["experiment_id"])
        if experiment is None:
            raise Rejection(NOT_FOUND, f"Experiment {body['experiment_id']} not found")
        body["namespace"] = self.authorize(experiment["namespace"], "run")
        reference = body.get("pipeline_version_reference")
        if reference and reference["pipeline_version_id"] not in self.versions:
            raise Rejection(
                NOT_FOUND, f"PipelineVersion {reference['pipeline_version_id']} not found"
            )
        if path == "recurringruns":
            body["status"] = {"ENABLE": "ENABLED", "DISABLE": "DISABLED"}[body["mode"]]
            return self.add(self.schedules, body, "recurring_run")
        self.submitted.append(body)
        self.tokens.append(self.headers["Authorization"])
        return {**body, "run_id": f"run{next(self.numbers)}"}

    def upload(self, path: str) -> dict[str, Any]:
        """Create a pipeline or a version from the file of a form (pipeline_upload_server.go)."""
        head = f"Content-Type: {self.headers['Content-Type']}\n\n".encode()
        (part,) = message_from_bytes(head + self.body).get_payload()
        text = part.get_payload(decode=True).decode()
        entry = {
            "display_name": self.query["name"],
            "description": self.query.get("description", ""),
        }
        version = {**entry, "pipeline_spec": text}
        if path == "pipelines/upload_version":
            version["pipeline_id"] = self.query["pipelineid"]
            self.authorize(self.pipelines[version["pipeline_id"]]["namespace"], "pipeline")
            return self.add(self.versions, version, "pipeline_version")
        entry["namespace"] = self.authorize(self.query.get("namespace", ""), "pipeline")
        pipeline = self.add(self.pipelines, entry, "pipeline")
        self.add(
            self.versions, {**version, "pipeline_id": pipeline["pipeline_id"]}, "pipeline_version"
        )
        return pipeline

    def delete(self, path: str) -> dict[str, Any]:
        schedule = self.schedules[path.rsplit("/", 1)[1]]
        self.authorize(schedule.get("namespace", ""), "recurring run")
        del self.schedules[schedule["recurring_run_id"]]
        return {}

    def authorize(self, namespace: str, kind: str) -> str:
        """Return the namespace of the resource: "" with one user, which has no namespaces."""
        if not self.users:
            if self.headers["Authorization"] == "Bearer expired":
                raise Rejection(UNAUTHENTICATED, "token expired")
            return ""
        if not namespace:
            raise Rejection(INVALID, f"a {kind} cannot have an empty namespace in multi-user mode")
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ") or self.headers[
            "Cookie"
        ]
        user = self.users.get(token or "")
        if user is None:
            raise Rejection(UNAUTHENTICATED, "User identity is empty in the request header")
        if namespace not in self.namespaces[user]:
            raise Rejection(FORBIDDEN, f"User '{user}' is not authorized in namespace {namespace}")
        return namespace

    def add(
        self, entries: dict[str, dict[str, Any]], body: dict[str, Any], kind: str
    ) -> dict[str, Any]:
        """Add an entry. The names of a pipeline's versions are unique
        (storage/pipeline_store.go:966)."""
        siblings = [
            entry
            for entry in entries.values()
            if entry.get("pipeline_id") == body.get("pipeline_id")
        ]
        if kind == "pipeline_version" and body["display_name"] in {
            entry["display_name"] for entry in siblings
        }:
            raise Rejection(
                CONFLICT, f"The name {body['display_name']} already exist. Specify a new name"
            )
        key = f"{kind}-{next(self.numbers)}"
        entries[key] = {**body, f"{kind}_id": key}
        return entries[key]

    def page(self, name: str, entries: dict[str, dict[str, Any]], namespace: str) -> dict[str, Any]:
        """List entries of a namespace, filtered by name as the query asks."""
        predicates = json.loads(self.query.get("filter", "{}")).get("predicates", [])
        wanted = {predicate["stringValue"] for predicate in predicates}
        found = [
            entry
            for entry in entries.values()
            if entry.get("namespace", "") == namespace
            and (not wanted or entry["display_name"] in wanted)
        ]
        start = int(self.query.get("page_token") or 0)
        more = str(start + PAGE) if start + PAGE < len(found) else ""
        return {name: found[start : start + PAGE], "next_page_token": more}

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
def serve(**users: str) -> Iterator[tuple[str, type[Kubeflow]]]:
    """Start a stub; yield its URL and its class, which holds the records.

    Args:
        users: namespace of each token; the server has several users if there are any.
    """
    records = {
        "users": {token: token for token in users},
        "namespaces": {token: {namespace} for token, namespace in users.items()},
        "numbers": count(),
        **{name: {} for name in ("schedules", "experiments", "pipelines", "versions", "runs")},
        **{name: [] for name in ("calls", "submitted", "tokens")},
    }
    handler = type("Stub", (Kubeflow,), records)
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}", handler
    http.shutdown()
    http.server_close()
