"""Malformed requests to the real server: each is answered in its class, and the service goes on."""

import json
import random
import socket
from io import BytesIO

import pytest
from PIL import Image

from tests.bifocal.serving.server import JSON, Server

SEARCH = "/api/v1/search"
IMAGE = {"content-type": "image/png"}


def raw(server: Server, content: bytes) -> bytes:
    """Send bytes; return the answer until the server closes, or 2 s have passed."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(content)
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = connection.recv(65_536)
            if not piece:
                break
            answer += piece
        return answer


def picture(width: int, height: int) -> bytes:
    file = BytesIO()
    Image.new("L", (width, height)).save(file, "PNG")
    return file.getvalue()


def cases() -> list[tuple[int, str, str, bytes, dict[str, str]]]:
    """Status, method, path, body and headers of 300 requests."""
    random.seed(5)
    values = [None, 0, -1, 1.5, "", "x", [], {}, [[]], True, 10**30, "\ud800"]
    wrong = {
        "text": [0, 1.5, "", " \t", [], {}, True, "\ud800", "x" * 10_001],
        "like": [0, "", [], {}, True],
        "plus": [0, "x", {}, [""], [1], [None], ["a"] * 17, [["a"]]],
        "minus": [0, "x", {}, [""], [1]],
        "where": [0, "x", [], {"no such column": 1}, None],
        "mode": [0, "", "words", "Vectors", [], {}, None, True],
        "group": [0, "", [], {}, True, "no such column"],
        "per_group": [0, -1, 1.5, "x", [], None],
        "k": [0, -1, 1.5, "x", [], 101, 10**30, None],
        "offset": [-1, 1.5, "x", [], 10**30, 977],
        "K": values,
        "query": values,
        "__class__": values,
        "": values,
    }
    found: list[tuple[int, str, str, bytes, dict[str, str]]] = []
    for name, bad in wrong.items():
        found += [
            (400, "POST", SEARCH, json.dumps({"text": "a star", name: value}).encode(), JSON)
            for value in bad
        ]
    for body in (
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"text": NaN}',
        b"[" * 50_000,
        b'{"minus": ["a"]}',
    ):
        found.append((400, "POST", SEARCH, body, JSON))
    found += [(413, "POST", SEARCH, b" " * size, JSON) for size in (65_537, 100_000, 1_000_000)]
    for name in (
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "a%0d%0aSet-Cookie:x",
        "http:%2f%2f127.0.0.1%2f",
        "x" * 5000,
    ):
        for path in ("thumbnail", "item"):
            found.append((404, "GET", f"/api/v1/{path}?id={name}", b"", {}))
        found.append(
            (404, "POST", "/api/v1/explain", json.dumps({"id": name, "text": "a"}).encode(), JSON)
        )
        found.append((404, "GET", f"/page/{name}", b"", {}))
    for path in (
        "thumbnail",
        "item",
        "thumbnail?id=",
        "thumbnail?id=test-00000&side=7",
        "thumbnail?id=test-00000&side=x",
    ):
        found.append((400, "GET", f"/api/v1/{path}", b"", {}))
    for path in (
        "/etc/passwd",
        "/page/",
        "/page/index.html/..",
        "/api/v1",
        "/api/v1/",
        "/api/v2/search",
        "//evil.example/",
    ):
        found.append((404, "GET", path, b"", {}))
    found += [(405, method, SEARCH, b"", {}) for method in ("GET", "PUT", "PATCH", "HEAD", "TRACE")]
    found += [(403, "DELETE", f"/api/v1/item?id={name}", b"", {}) for name in ("test-00001", "x")]
    upload = f"{SEARCH}/image"
    garbage = [random.randbytes(size) for size in (1, 10, 100, 5000)]
    found += [
        (415, "POST", upload, body, IMAGE)
        for body in (*garbage, b"GIF", b"<svg/>", b"%!PS-Adobe-3.0 EPSF", b"%PDF-1.7")
    ]
    found += [
        (415, "POST", upload, picture(9, 9), {"content-type": kind})
        for kind in ("text/html", "multipart/form-data", "x", ";")
    ]
    found += [
        (415, "POST", path, b"{}", {"content-encoding": kind, "content-type": "application/json"})
        for path in (SEARCH, upload, "/v2/models/x/infer")
        for kind in ("gzip", "br, gzip", "")
    ]
    whole = picture(64, 64)
    found += [(400, "POST", upload, whole[:size], IMAGE) for size in (0, len(whole) // 2)]
    found.append((413, "POST", upload, picture(10_000, 5_001), IMAGE))
    for query in (
        "k=0",
        "k=x",
        "k=101",
        "offset=-1",
        "where=[]",
        "where={",
        "where=%7B%22a%22:1%7D",
        "plus=",
    ):
        found.append((400, "POST", f"{upload}?{query}", whole, IMAGE))
    found.append((414, "POST", f"{upload}?minus={'x' * 8193}", whole, IMAGE))
    for _ in range(300 - len(found)):  # damaged copies of a good request
        body = bytearray(json.dumps({"text": "three red stars", "k": 5, "plus": ["snow"]}).encode())
        for _ in range(3):
            body[random.randrange(len(body))] = random.choice(b'{}[]",:\\\x00\xff')
        found.append((0, "POST", SEARCH, bytes(body), JSON))
    return found


def test_300_malformed_requests_are_answered_in_their_class(server: Server) -> None:
    requests = cases()
    assert len(requests) >= 300
    connection = server.connect()
    wrong = []
    for status, method, path, body, headers in requests:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        expected = {200, 400} if status == 0 else {status}
        explained = answer.status == 200 or method == "HEAD" or json.loads(content)["error"]
        if answer.status not in expected or not explained or "set-cookie" in answer.headers:
            wrong.append(
                (status, answer.status, method, path[:80], bytes(body[:80]), content[:200])
            )
    connection.close()
    assert not wrong, wrong
    assert server.search(text="a red star", k=1)["results"]
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    "content",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx y: z\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"POST /api/v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /api/v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
        b"5\r\ncontent-length: 6\r\n\r\nhello",
        b"GET /api/v1/info HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        b"GET /api/v1/info HTTP/1.1\r\nhost: localhost.evil.example:80\r\n\r\n",
    ],
)
def test_broken_http_and_foreign_hosts_are_answered_with_400(
    server: Server, content: bytes
) -> None:
    assert raw(server, content).split(b" ")[1] in (b"400", b"431")


def test_a_declared_body_above_the_limit_is_refused_before_it_arrives(server: Server) -> None:
    head = b"POST /api/v1/search/image HTTP/1.1\r\nhost: localhost\r\ncontent-type: image/png\r\n"
    assert raw(server, head + b"content-length: 99999999999\r\n\r\n").startswith(b"HTTP/1.1 413 ")
