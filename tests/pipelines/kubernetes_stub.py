"""Stub of the Kubernetes API: access reviews, and the objects of one namespace."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml


class Kubernetes(BaseHTTPRequestHandler):
    """Attributes:
    denied: verb and resource that reviews deny.
    objects: paths of the objects that exist, below the namespace, or of the cluster.
    bodies: objects with content, by path.
    may_review_others: whether reviews of other users are allowed.
    reviews: user, verb and resource of each review.
    """

    denied: set[tuple[str, str]]
    objects: set[str]
    bodies: dict[str, dict[str, Any]]
    may_review_others: bool
    reviews: list[tuple[str, str, str]]

    def do_GET(self) -> None:
        if self.path == "/version/":
            self.answer({"major": "1", "minor": "33", **dict.fromkeys(VERSION, "")})
        elif (name := self.path.partition("/namespaces/")[2] or self.path) in self.bodies:
            self.answer(self.bodies[name])
        elif name in self.objects:
            self.answer({"metadata": {"name": "found"}})
        else:
            self.answer({"kind": "Status", "reason": "NotFound"}, 404)

    def do_POST(self) -> None:
        spec = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["spec"]
        user, right = spec.get("user", "self"), spec["resourceAttributes"]
        if user != "self" and not self.may_review_others:
            self.answer({"kind": "Status", "reason": "Forbidden"}, 403)
            return
        resource = "/".join(filter(None, [right["resource"], right.get("subresource")]))
        self.reviews.append((user, right["verb"], resource))
        self.answer(
            {"spec": spec, "status": {"allowed": (right["verb"], resource) not in self.denied}}, 201
        )

    def answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


VERSION = (
    "buildDate",
    "compiler",
    "gitCommit",
    "gitTreeState",
    "gitVersion",
    "goVersion",
    "platform",
)


@contextmanager
def serve_kubernetes(kubeconfig: Path) -> Iterator[type[Kubernetes]]:
    """Start a stub, write the configuration of its clients, and yield its class, which holds the
    records."""
    records = {
        "denied": set(),
        "objects": set(),
        "bodies": {},
        "may_review_others": True,
        "reviews": [],
    }
    handler = type("Stub", (Kubernetes,), records)
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    names = {"clusters": "cluster", "users": "user", "contexts": "context"}
    entries = {
        "cluster": {"server": f"http://127.0.0.1:{http.server_address[1]}"},
        "user": {},
        "context": {"cluster": "stub", "user": "stub"},
    }
    values = {name: [{"name": "stub", kind: entries[kind]}] for name, kind in names.items()}
    kubeconfig.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "stub", **values})
    )
    yield handler
    http.shutdown()
    http.server_close()
