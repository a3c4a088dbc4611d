"""A server on loopback that speaks the protocol of the Hugging Face hub for the files of a
folder."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".onnx", ".safetensors")
"""Files that the hub stores by their SHA-256."""


@dataclass
class Hub:
    """Repositories ``root/OWNER/NAME`` at an address, and what was asked for."""

    root: Path
    address: str = ""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    cut: set[str] = field(
        default_factory=set
    )  # names of files whose next answer ends in the middle
    wrong: set[str] = field(default_factory=set)  # names of files that are sent with another byte

    def got(self, suffix: str) -> list[str | None]:
        """Return the range of each request for the content of a file."""
        return [
            span
            for method, path, span in self.requests
            if method == "GET" and path.endswith(suffix)
        ]


@contextmanager
def serve_hub(root: Path) -> Iterator[Hub]:
    """Serve a folder until the block ends; the hub's library uses it and a cache of its own."""
    hub = Hub(root)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def log_message(self, format: str, *arguments: object) -> None: ...

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path).strip("/")
            hub.requests.append((self.command, path, self.headers["Range"]))
            parts = path.split("/")
            if parts[:2] == ["api", "models"] and (root / parts[2] / parts[3]).is_dir():
                self._describe(root / parts[2] / parts[3], "".join(parts[4:5]))
            elif (
                parts[2:3] == ["resolve"]
                and (root / parts[0] / parts[1] / "/".join(parts[4:])).is_file()
            ):
                self._send_file(root / parts[0] / parts[1] / "/".join(parts[4:]))
            else:
                self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

        def _describe(self, folder: Path, kind: str) -> None:
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            names = [file.relative_to(folder).as_posix() for file in files]
            if kind == "tree":
                content: object = [
                    _entry(file, name) for file, name in zip(files, names, strict=True)
                ]
            else:
                sizes = [
                    {"rfilename": name, "size": file.stat().st_size}
                    for name, file in zip(names, files, strict=True)
                ]
                content = {"id": folder.name, "sha": COMMIT, "siblings": sizes}
            self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

        def _send_file(self, file: Path) -> None:
            content, start = file.read_bytes(), 0
            headers = {
                "ETag": f'"{_digest(file)}"',
                "X-Repo-Commit": COMMIT,
                "Accept-Ranges": "bytes",
            }
            if self.headers["Range"]:
                start = int(self.headers["Range"].removeprefix("bytes=").split("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            if file.name in hub.wrong:
                content = content[:-1] + bytes([content[-1] ^ 1])
            self._send(206 if start else 200, content[start:], headers, cut=file.name in hub.cut)

        def _send(
            self, status: int, content: bytes, headers: dict[str, str], cut: bool = False
        ) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                if cut:
                    hub.cut.clear()
                    content, self.close_connection = content[: len(content) // 2], True
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(root.parent / "hub-cache"))
        patch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(root.parent / "token"))
        patch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))
        try:
            yield hub
        finally:
            server.shutdown()
            server.server_close()


def _digest(file: Path) -> str:
    content = file.read_bytes()
    if file.suffix in LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(file: Path, name: str) -> dict[str, object]:
    size = file.stat().st_size
    large = (
        {"lfs": {"oid": _digest(file), "size": size, "pointerSize": 100}}
        if file.suffix in LARGE
        else {}
    )
    return {"type": "file", "path": name, "size": size, "oid": _digest(file), **large}
