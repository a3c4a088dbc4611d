"""Proxy in front of an S3 server that injects planned faults."""

import http.client
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

SLOW_SECONDS = 0.2


@dataclass
class Faults:
    """Faults of the next requests, by method.

    They are "500", "503", "close" (in mid-body), "stall" (no answer), "slow" and "flip" (a byte of
    the body); "ok" is none.
    """

    port: int
    planned: dict[str, list[str]] = field(default_factory=dict)
    seen: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stalled: threading.Event = field(default_factory=threading.Event)
    capitals: bool = False  # of the names of headers, as a proxy in Go writes them
    trailers: bool = True  # False: refuse bodies in signed chunks, as older servers do

    def next(self, method: str, path: str) -> str | None:
        with self.lock:
            self.seen.append((method, path))
            waiting = self.planned.get(method, [])
            return waiting.pop(0) if waiting else None


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults: Faults

    def forward(self) -> None:
        fault = self.faults.next(self.command, self.path)
        if self.headers.get("Expect"):
            self.close_connection = True
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.close_connection = True
            fault = fault if self.faults.trailers else "501"
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault == "stall":
            self.faults.stalled.wait()
            self.close_connection = True
            return
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        if fault in ("500", "501", "503"):
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        headers = dict(self.headers)
        if fault == "lengthen":  # the server stores the frame of a chunk with the file
            body = b"1f4\r\n" + body
            headers["Content-Length"] = str(len(body))
            for name in [name for name in headers if "checksum" in name or "sha256" in name]:
                del headers[name]
        upstream = http.client.HTTPConnection("127.0.0.1", self.faults.port)
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        data = answer.read()
        if fault == "flip" and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in (
                "transfer-encoding",
                "content-length",
                "connection",
                "date",
                "server",
            ):
                capital = "-".join(word.capitalize() for word in name.split("-"))
                self.send_header(capital if self.faults.capitals else name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if fault == "close":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        else:
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

    def log_message(self, format: str, *args: Any) -> None:
        pass
