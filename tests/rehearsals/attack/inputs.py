"""Hostile requests to the service, by name: each sends what it has, and returns how many answers
had which status."""

import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from http.client import HTTPException
from io import BytesIO
from urllib.parse import quote

import numpy as np
from PIL import Image

from tests.bifocal.image_files import png_of, with_scans
from tests.bifocal.serving.server import JSON, Server
from tests.rehearsals.attack.loop import loop_attacks
from tests.rehearsals.attack.protocol import (
    INFER,
    UPLOAD,
    Statuses,
    large_tensors,
    protocol_attacks,
)

AT_ONCE = 16


def attacks() -> dict[str, Callable[[Server], Statuses]]:
    """Return the attacks by name; ``SECURITY.md`` says what each is refused by."""
    return {
        "JSON: 2, 6 and 19 MB of values of the wrong type": send_values,
        "JSON: 100,000 nested lists, objects and deep strings": send_nested,
        "image headers: 1 x 50,000,000 and 20 x 1,000,000 pixels": send_headers_of_images,
        "images that decode for long: JPEG of 99 scans, BMP of runs, GIF of 900 frames": send_slow_images,
        "image files that are cut, empty, text or random": send_broken_images,
        "1,100 connections with half a header": send_half_headers,
        "64 bodies of one byte per second": send_slow_bodies,
        "ids and paths that lead out of the collection": send_paths,
        "2,000 malformed requests": send_malformed,
        **protocol_attacks(),
        **loop_attacks(),
        "500 guesses of a key, invented addresses, foreign hosts and sites": send_guesses,
    }


def prepare() -> None:
    """Make the large bodies: while this process does so, it sends no probe."""
    large_tensors()
    wrong_values()
    slow_images()


def send_all(
    server: Server, requests: Iterator[tuple[str, str, bytes, dict[str, str]]]
) -> Statuses:
    """Send requests at once; count the statuses, and the connections that ended without an
    answer."""

    def send(request: tuple[str, str, bytes, dict[str, str]]) -> int | str:
        try:
            status, body, _ = server.request(*request)
        except (OSError, HTTPException):
            return "closed"
        assert b"root:" not in body, "a file outside was sent"
        return status

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return Counter(threads.map(send, requests))


@cache
def wrong_values() -> list[bytes]:
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES"}
    counts = (700_000, 2_000_000, 6_300_000)
    return [json.dumps({"inputs": [{**tensor, "data": [0] * count}]}).encode() for count in counts]


def send_values(server: Server) -> Statuses:
    return send_all(server, (("POST", INFER, body, JSON) for body in wrong_values() * 2))


def send_nested(server: Server) -> Statuses:
    deep = 100_000
    bodies = [
        "[" * deep,
        "[" * deep + "]" * deep,
        '{"a":' * deep + "1" + "}" * deep,
        '{"text": "' + "\\" * deep + '"}',
    ]
    return send_all(
        server,
        (
            ("POST", path, body.encode(), JSON)
            for body in bodies
            for path in (INFER, "/api/v1/search")
        ),
    )


def upload(content: bytes, kind: str = "image/png") -> tuple[str, str, bytes, dict[str, str]]:
    return "POST", UPLOAD, content, {"content-type": kind}


def send_headers_of_images(server: Server) -> Statuses:
    sizes = (
        (1, 50_000_000),
        (50_000_000, 1),
        (20, 1_000_000),
        (65_536, 65_536),
        (2**31 - 1, 2**31 - 1),
    )
    return send_all(server, (upload(png_of(*size, bytes(12))) for size in sizes for _ in range(8)))


@cache
def slow_images() -> list[tuple[bytes, str]]:
    noise = np.random.default_rng(0).integers(0, 2, (3000, 4000), np.uint8) * 255
    jpeg, bmp, gif = BytesIO(), BytesIO(), BytesIO()
    Image.fromarray(noise).save(jpeg, "JPEG", progressive=True, quality=30)
    pixels = bytes((2, 0)) * 1500 + bytes((0, 0))
    body = pixels * 3000 + bytes((0, 1))
    bmp.write(b"BM" + struct.pack("<IHHI", 1078 + len(body), 0, 0, 1078))
    bmp.write(
        struct.pack("<IiiHHIIiiII", 40, 3000, 3000, 1, 8, 1, len(body), 0, 0, 256, 0)
        + b"\0" * 1024
        + body
    )
    frames = [Image.new("P", (300, 300), index % 255) for index in range(900)]
    frames[0].save(gif, "GIF", save_all=True, append_images=frames[1:])
    return [
        (with_scans(jpeg.getvalue(), 99), "image/jpeg"),
        (bmp.getvalue(), "image/bmp"),
        (gif.getvalue(), "image/gif"),
    ]


def send_slow_images(server: Server) -> Statuses:
    return send_all(
        server, (upload(content, kind) for _ in range(3) for content, kind in slow_images())
    )


def send_broken_images(server: Server) -> Statuses:
    buffer = BytesIO()
    Image.linear_gradient("L").convert("RGB").save(buffer, "JPEG")
    whole, noise = buffer.getvalue(), random.Random(0)
    contents = [whole[:length] for length in range(0, len(whole), max(1, len(whole) // 30))]
    contents += [b"", b"text", noise.randbytes(4000), b"\x89PNG\r\n\x1a\n", b"GIF89a", b"%PDF-1.7"]
    return send_all(
        server, (upload(content, kind) for content in contents for kind in ("image/jpeg", ""))
    )


def send_half_headers(server: Server) -> Statuses:
    found: Statuses = Counter()
    connections = []
    for number in range(1_100):
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: %d" % number)
            connections.append(connection)
    time.sleep(12)  # the header has 10 s
    for connection in connections:
        connection.settimeout(0.2)
        try:
            found["closed" if connection.recv(1) == b"" else "answered"] += 1
        except ConnectionError:
            found["closed"] += 1
        except TimeoutError:
            found["open after 12 s"] += 1
        connection.close()
    return found


def send_slow_bodies(server: Server) -> Statuses:
    def send(_: int) -> int | str:
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=40) as connection:
                connection.sendall(
                    b"POST /api/v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n"
                )
                connection.sendall(b"content-type: application/json\r\n\r\n")
                for _ in range(25):
                    connection.sendall(b" ")
                    time.sleep(1)
                return int(connection.recv(64).split()[1])
        except (OSError, IndexError, ValueError):
            return "closed"

    with ThreadPoolExecutor(64) as threads:
        return Counter(threads.map(send, range(64)))


def send_guesses(server: Server) -> Statuses:
    def requests() -> Iterator[tuple[str, str, bytes, dict[str, str]]]:
        body = json.dumps({"text": "a red star"}).encode()
        for number in range(500):
            yield "DELETE", "/api/v1/item?id=test-00000", b"", {"authorization": f"Bearer {number}"}
        for number in range(100):
            yield "POST", "/api/v1/search", body, {**JSON, "x-forwarded-for": f"10.0.0.{number}"}
            yield "POST", "/api/v1/search", body, {**JSON, "host": f"evil{number}.example"}
            yield (
                "POST",
                "/api/v1/search",
                body,
                {**JSON, "origin": "http://evil.example", "sec-fetch-site": "cross-site"},
            )

    return send_all(server, requests())


def send_paths(server: Server) -> Statuses:
    names = (
        "../../../../etc/passwd",
        "/etc/passwd",
        "..%2f..%2fetc/passwd",
        "file:///etc/passwd",
        "\\\\host\\share",
        "\0",
    )
    routes = ("thumbnail?id=", "original?id=", "item?id=")
    paths = [f"/api/v1/{route}{quote(name)}" for route in routes for name in names]
    paths += [
        "/page/../../../etc/passwd",
        "/page/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/api/v1/../../etc/passwd",
    ]
    return send_all(server, (("GET", path, b"", {}) for path in paths))


def send_malformed(server: Server) -> Statuses:
    noise = random.Random(0)
    paths = (
        "/",
        "/api/v1/search",
        "/api/v1/explain",
        UPLOAD,
        INFER,
        "/api/v1/browse",
        "/v2",
        "/metrics",
        "/nothing",
    )
    kinds = ("application/json", "image/png", "text/plain", "")

    def send(number: int, chosen: random.Random) -> int | str:
        path, size = chosen.choice(paths), chosen.choice((0, 1, 20, 3000))
        body = (
            chosen.randbytes(size)
            if number % 2
            else json.dumps({chosen.choice("kqt"): chosen.random()}).encode()
        )
        method = chosen.choice(("GET", "POST", "DELETE", "PUT", "BREW"))
        try:
            return server.request(method, path, body, {"content-type": chosen.choice(kinds)})[0]
        except (OSError, HTTPException):
            return "closed"

    with ThreadPoolExecutor(AT_ONCE) as threads:
        seeds = [random.Random(noise.random()) for _ in range(2_000)]
        return Counter(threads.map(partial(send), range(2_000), seeds))
