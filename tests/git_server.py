"""Git server over HTTP that wants a login, by git's own http-backend."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER, PASSWORD = "robot", "s3cret-token"


class GitServer(BaseHTTPRequestHandler):
    """Serves the repositories below ``root`` to ``USER``."""

    root: Path

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {login}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic realm=git")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        variables = {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_USER": USER,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        answer = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env={**os.environ, **variables},
            capture_output=True,
            check=True,
        ).stdout
        head, _, data = answer.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(headers.pop("Status", "200")[:3]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve_git(root: Path) -> Iterator[str]:
    """Serve the repositories below ``root``; yield the address."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("Server", (GitServer,), {"root": root}))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    http.server_close()


def create_repository(folder: Path, name: str = "data.txt") -> str:
    """Create a repository with one file; return its commit."""
    folder.mkdir(parents=True)
    (folder / name).write_text("a caption\n")

    def git(*arguments: str) -> str:
        login = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        command = ["git", *login, *arguments]
        return subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    git("add", ".")
    git("commit", "--quiet", "--message", "Add a file")
    return git("rev-parse", "HEAD")
