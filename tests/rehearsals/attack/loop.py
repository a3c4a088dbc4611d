"""Hostile requests that cost the service little each: answered in the event loop, or never read."""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tests.bifocal.serving.server import Server
from tests.rehearsals.attack.protocol import (
    ATTACKERS,
    UPLOAD,
    Statuses,
    exchange,
    send_each,
    statuses,
)

GET = "GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n"
CONNECTIONS = 250
READ_SECONDS, UNREAD_SECONDS = 6, 28


def loop_attacks() -> dict[str, Callable[[Server], Statuses]]:
    """Return the attacks by name."""
    return {
        "250 pipelining connections of one address: the page": lambda server: pipeline(server, "/"),
        "250 pipelining connections of one address: the OpenAPI document": lambda server: pipeline(
            server, "/api/v1/openapi.json"
        ),
        "250 pipelining connections of one address: info": lambda server: pipeline(
            server, "/api/v1/info"
        ),
        "250 connections with a query of 27 kB to decode": send_queries,
        "64 connections of 600 pages that nobody reads": send_unread,
        "damaged chunks, trailers and extensions of an upload": send_damaged_chunks,
        "two headers Host, Authorization, Origin or Sec-Fetch-Site": send_doubled_headers,
    }


def pipeline(server: Server, path: str) -> Statuses:
    """Send many requests on each connection at once, and read all answers."""
    content, found = GET.format(path).encode() * 300, Counter[int | str]()
    with selectors.DefaultSelector() as selector:
        for _ in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", server.port), 10, (ATTACKERS[0], 0))
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(content)
            selector.register(connection, selectors.EVENT_READ)
        end = time.monotonic() + READ_SECONDS
        while time.monotonic() < end and selector.get_map():
            for key, _ in selector.select(0.2):
                with suppress(OSError):
                    answers = key.fileobj.recv(2**20)  # type: ignore[union-attr]
                    found += Counter(
                        {
                            status: answers.count(b"HTTP/1.1 %d" % status)
                            for status in (200, 429, 500)
                        }
                    )
                    if answers:
                        continue
                selector.unregister(key.fileobj)
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return +found


def send_queries(server: Server) -> Statuses:
    """Send addresses whose decoding takes longer than their answer."""
    paths = ("/api/v1/item", "/api/v1/thumbnail", "/healthz", "/")
    contents = [GET.format(f"{path}?id={'%41' * 9_000}").encode() for path in paths]
    return send_each(server, contents * 63, CONNECTIONS)


def send_unread(server: Server) -> Statuses:
    """Send requests and read nothing: the connections must end by themselves."""
    content, connections = GET.format("/page/gallery.js").encode() * 600, []
    for number in range(64):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.bind((ATTACKERS[number % 2], 0))
        connection.connect(("127.0.0.1", server.port))
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(content)
        connections.append(connection)
    time.sleep(UNREAD_SECONDS)
    found: Statuses = Counter()
    for connection in connections:
        try:
            connection.send(b"GET")
            connection.send(b"GET")
        except BlockingIOError:
            found["open after 28 s"] += 1
        except OSError:
            found["closed"] += 1
        else:
            found["open after 28 s"] += 1
        connection.close()
    assert set(found) == {"closed"}, "an answer that nobody reads holds its connection"
    return found


def send_damaged_chunks(server: Server) -> Statuses:
    head = (
        f"POST {UPLOAD} HTTP/1.1\r\nhost: localhost\r\ncontent-type: image/jpeg\r\n"
        "transfer-encoding: chunked\r\n\r\n"
    ).encode()
    part = b"4\r\nabcd\r\n"
    bodies = [
        b"zz\r\n" + part,
        b"-1\r\n" + part,
        b"10000000000000000\r\n" + part,
        b"4\r\nabcdXX0\r\n\r\n",
        part.replace(b"\r\n", b"\n") + b"0\n\n",
        part + b"0\r\n" + b"X: a\r\n" * 200 + b"\r\n",
        part + b"0\r\n: bad\r\n\r\n",
        b"4;" + b"a" * 17_000 + b"\r\nabcd\r\n0\r\n\r\n",
    ]
    return statuses([exchange(server, head + body, seconds=5) for body in bodies])


def send_doubled_headers(server: Server) -> Statuses:
    found: Statuses = Counter()
    for name in ("host", "authorization", "origin", "sec-fetch-site"):
        lines = "".join(f"{part}: localhost\r\n" for part in ("host", name, name))
        found += statuses([exchange(server, f"GET / HTTP/1.1\r\n{lines}\r\n".encode(), seconds=12)])
    return found
