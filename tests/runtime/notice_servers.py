"""Servers on loopback that keep the notices that they get: a web hook, and a mail server of RFC 5321."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def web_hook(status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a web hook, and the texts that it gets."""
    texts: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _serving(HTTPServer(("127.0.0.1", 0), Hook)) as port:
        yield f"http://127.0.0.1:{port}/", texts


@contextmanager
def mail_server() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a mail server, and the messages that it gets."""
    mails: list[str] = []

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test\r\n")
            while line := self.rfile.readline().decode().upper():
                if line.startswith("DATA"):
                    self.wfile.write(b"354 end with a point\r\n")
                    lines = iter(lambda: self.rfile.readline().decode(), ".\r\n")
                    mails.append("".join(lines))
                self.wfile.write(b"221 bye\r\n" if line.startswith("QUIT") else b"250 ok\r\n")

    with _serving(socketserver.TCPServer(("127.0.0.1", 0), Session)) as port:
        yield f"smtp://127.0.0.1:{port}", mails


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
