"""The HTTP client against sockets that answer byte by byte, and against servers that redirect."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal import http
from bifocal.http import HTTPStatusError, request

SECRET = "hooks/T0/B1/s3cret"


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Yield an address whose server takes one request, and writes to it by ``answer``."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                with suppress(OSError):  # the client has closed the connection
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/{SECRET}"


class Recorder(BaseHTTPRequestHandler):
    """Keeps the headers and paths of requests; redirects to ``target``, if there is one."""

    target: str
    status: int
    seen: list[tuple[str, str, str | None]]

    def do_GET(self) -> None:
        self.seen.append((self.command, self.path, self.headers["Authorization"]))
        self.send_response(self.status if self.target else 200)
        if self.target:
            self.send_header("Location", self.target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def recording(
    target: str = "", status: int = 302
) -> Iterator[tuple[str, list[tuple[str, str, str | None]]]]:
    handler = type("Recorder", (Recorder,), {"target": target, "status": status, "seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler.seen
        server.shutdown()


@given(
    content=st.binary(max_size=5000),
    zipped=st.booleans(),
    cuts=st.lists(st.integers(0, 5000), max_size=5),
)
def test_any_body_in_any_pieces_is_returned(content: bytes, zipped: bool, cuts: list[int]) -> None:
    body = gzip.compress(content) if zipped else content
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})

    def answer(connection: socket.socket) -> None:
        head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
        connection.sendall((head + "Content-Encoding: gzip\r\n" * zipped + "\r\n").encode())
        for start, end in pairwise(places):
            connection.sendall(b"%x\r\n%s\r\n" % (end - start, body[start:end]))
        connection.sendall(b"0\r\n\r\n")

    with answering(answer) as address:
        assert request(address) == content


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_stays_with_its_host(host: str, status: int) -> None:
    with recording() as (other, seen), recording("", status) as (same, _):
        target = other.replace("127.0.0.1", host)  # another name, or another port
        with recording(target, status) as (first, sent):
            request(f"{first}/x", token="s3cret")
            assert sent == [("GET", "/x", "Bearer s3cret")]
            request(f"{first.replace('//', '//user:s3cret@')}/y")
        assert [header for _, _, header in seen] == [None, None]
        request(same.replace("//", "//user:s3cret@"))


def test_a_post_that_is_redirected_was_not_accepted() -> None:
    with (
        recording() as (target, seen),
        recording(target) as (first, _),
        pytest.raises(HTTPStatusError, match="status 302"),
    ):
        request(first, body={"text": "a"})
    assert seen == []


@pytest.mark.parametrize("status", [204, 304, 400, 401, 404, 500, 503])
def test_only_a_successful_status_is_an_answer(status: int) -> None:
    head = f"HTTP/1.1 {status} Reason\r\nContent-Length: 0\r\n\r\n".encode()
    with answering(lambda connection: connection.sendall(head)) as address:
        if status == 204:
            assert request(address) == b""
            return
        with pytest.raises(HTTPStatusError) as error:
            request(address)
    assert error.value.status == status
    assert SECRET not in str(error.value)


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(100):
        connection.sendall(b"a")
        time.sleep(0.02)


BOMB = gzip.compress(bytes(32 << 20))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda connection: None, "closed connection"),
        (lambda connection: connection.sendall(b"nonsense\r\n\r\n"), "nonsense"),
        (lambda connection: connection.sendall(HEAD % 9 + b"\r\nabc"), "IncompleteRead"),
        (
            lambda connection: connection.sendall(
                HEAD % len(BOMB) + b"Content-Encoding: gzip\r\n\r\n" + BOMB
            ),
            "more than 16 MiB",
        ),
        (
            lambda connection: connection.sendall(
                b"HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"
            ),
            "not an address",
        ),
    ],
)
def test_a_broken_answer_is_an_error_without_the_address(
    answer: Callable[[socket.socket], object], message: str
) -> None:
    with answering(answer) as address, pytest.raises((OSError, ValueError), match=message) as error:
        request(address)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda connection: time.sleep(1), "timed out"),
        (drip, "no complete answer within 0.5 s"),
    ],
)
def test_a_slow_answer_is_an_error_without_the_address(
    answer: Callable[[socket.socket], object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "SECONDS", 0.5)
    test_a_broken_answer_is_an_error_without_the_address(answer, message)


@pytest.mark.parametrize(
    "address", ["hooks.example.org/s3cret", "http://", "ftp://host/s3cret", ""]
)
def test_another_text_is_not_an_address(address: str) -> None:
    with pytest.raises(ValueError, match="not an address that starts with http") as error:
        request(address)
    assert "s3cret" not in str(error.value)


def test_a_body_is_sent_as_json_and_netrc_replaces_no_token(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path_factory.mktemp("home") / "netrc"
    file.write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(file))
    received: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        while not received or not received[-1].endswith(b"}"):
            received.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with recording() as (address, seen):
        request(address, token="mine", body={"text": "ü"})
    assert seen == [("POST", "/", "Bearer mine")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: answer(server.accept()[0]), daemon=True)
        thread.start()
        assert request(f"http://127.0.0.1:{server.getsockname()[1]}", body={"text": "ü"}) == b"ok"
    head, _, body = b"".join(received).partition(b"\r\n\r\n")
    assert json.loads(body) == {"text": "ü"}
    assert b"application/json" in head
