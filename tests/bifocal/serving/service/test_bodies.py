"""Bodies that are slow, incomplete, in small parts or where no route has one."""

import asyncio
import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import hypothesis
import pytest
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from bifocal.serving.service import bodies
from bifocal.serving.service.bodies import BODIES, Body, Places
from bifocal.serving.service.settings import Settings
from tests.bifocal.serving.runs import LoadedSource
from tests.bifocal.serving.server import Server
from tests.bifocal.serving.service.clients import SEARCH, client

CHUNKED = b"POST %s HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
UNFINISHED = (
    b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
    b"1000\r\n\r\n"
)


def exchange(server: Server, content: bytes) -> bytes:
    """Send bytes; return all answers, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        found = b""
        try:
            connection.sendall(content)
            while part := connection.recv(65_536):
                found += part
        except ConnectionError:
            pass
    return found


def body(
    path: str = SEARCH, address: str = "a", size: bytes | None = b"100", **headers: bytes
) -> Body:
    names = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    length = [] if size is None else [(b"content-length", size)]
    return Body({"method": "POST", "path": path, "headers": [*length, *names]}, address, Settings())


def read(given: Body, parts: list[bytes], pause: float = 0.0) -> bytes:
    """Return the content of a body that arrives in parts; the last one is never followed by an
    end."""
    left = list(parts)

    async def receive() -> dict[str, object]:
        if not left:
            await asyncio.sleep(60)
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": left.pop(0), "more_body": left != []}

    async def run() -> bytes:
        return (await (await given.read(receive))())["body"]

    return asyncio.run(run())


def test_the_paths_with_bodies_are_those_of_the_document(source: LoadedSource) -> None:
    with client(source) as opened:
        paths = opened.get("/api/v1/openapi.json").json()["paths"]
    described = {
        path
        for path, methods in paths.items()
        if any("requestBody" in kind for kind in methods.values())
    }
    assert described == {path for path in paths if BODIES.fullmatch(path)}
    assert {
        method
        for path in described
        for method, kind in paths[path].items()
        if "requestBody" in kind
    } == {"post"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"/", b"405"),
        (b"/healthz", b"405"),
        (b"/nothing", b"404"),
        (SEARCH.encode(), b"411"),
        (b"/v2/models/bifocal/infer", b"411"),
    ],
)
def test_bodies_in_chunks_are_for_uploads(server: Server, path: bytes, status: bytes) -> None:
    answer = exchange(
        server,
        CHUNKED % path + b"1\r\na\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1") == 1  # the connection is closed
    closing = CHUNKED.replace(b"host:", b"connection: close\r\nhost:")
    upload = exchange(server, closing % b"/api/v1/search/image" + b"1\r\na\r\n0\r\n\r\n")
    assert upload.startswith(b"HTTP/1.1 415")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("path", [b"/", b"/healthz", SEARCH.encode(), b"/api/v1/search/image"])
def test_a_length_beside_chunks_is_the_end_of_a_connection(
    server: Server, path: bytes, order: int
) -> None:
    lengths = [b"content-length: 5", b"transfer-encoding: chunked"][::order]
    head = b"\r\n".join([b"POST " + path + b" HTTP/1.1", b"host: localhost", *lengths])
    answer = exchange(
        server, head + b"\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 4")
    assert answer.count(b"HTTP/1.1") == 1


def test_chunks_of_one_byte_leave_the_probes_alive(server: Server) -> None:
    chunks = b"1\r\na\r\n" * 65_000

    def attack(number: int) -> bytes:
        return exchange(
            server, CHUNKED % (b"/api/v1/search/image" if number % 2 else b"/") + chunks
        )

    with ThreadPoolExecutor(32) as threads:
        running = [threads.submit(attack, number) for number in range(32)]
        times = []
        while not all(task.done() for task in running):
            start = time.monotonic()
            assert server.get("/healthz")[0] == 200
            times.append(time.monotonic() - start)
    assert max(times) < 1
    assert {task.result()[:12] for task in running} <= {
        b"HTTP/1.1 400",
        b"HTTP/1.1 405",
        b"HTTP/1.1 408",
        b"HTTP/1.1 429",
        b"",
    }


def test_incomplete_bodies_of_one_address_take_no_place_of_others(server: Server) -> None:
    with ExitStack() as stack:
        for number in range(600):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", server.port), timeout=30)
            )
            connection.sendall(
                UNFINISHED % (b"/", SEARCH.encode(), b"/api/v1/search/image")[number % 3]
            )
        for _ in range(5):
            other = stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", server.port), timeout=30, source_address=("127.0.0.2", 0)
                )
            )
            content = json.dumps({"text": "a red star"}).encode()
            other.sendall(
                (UNFINISHED % SEARCH.encode()).replace(b"1000", b"%d" % len(content)) + content
            )
            assert other.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_body_that_is_too_slow_or_in_too_many_parts_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read(body(size=b"3"), [b"a", b"b", b"c"]) == b"abc"
    monkeypatch.setattr(bodies, "SLOW_SECONDS", 0.1)
    for given, parts, pause, status in (
        (body(), [b"a", b""] * 50, 0.05, 408),
        (body(), [b"a"] * 1100, 0.0, 400),
        (body(size=b"65537"), [], 0.0, 413),
        (body(), [b"a" * 65_537], 0.0, 413),
        (body(size=b"9" * 5000), [], 0.0, 413),
        (body(size="²".encode()), [], 0.0, 400),
    ):
        with pytest.raises(HTTPException) as refused:
            read(given, parts, pause)
        assert refused.value.status_code == status
        assert given.unread
    many = [b"a" * bodies.PART_BYTES] * 2 * bodies.PARTS
    assert len(read(body("/api/v1/search/image", transfer_encoding=b"chunked"), many)) == len(
        b"".join(many)
    )


def test_the_slowest_body_of_the_greediest_address_makes_room() -> None:
    async def wait(receive_more: asyncio.Event, places: Places, given: Body) -> int:
        async def receive() -> dict[str, object]:
            await receive_more.wait()
            return {"type": "http.request", "body": b"{}", "more_body": False}

        try:
            with places.take(given):
                await given.read(receive)
                await asyncio.sleep(0.01)
        except HTTPException as error:
            return error.status_code
        return 200

    async def run(
        addresses: str, change: Callable[[asyncio.Event], None] = lambda event: None
    ) -> list[int]:
        more, places, tasks = asyncio.Event(), Places(4, 3), []
        for address in addresses:
            tasks.append(asyncio.create_task(wait(more, places, body(address=address))))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            change(more)
        await asyncio.sleep(0.01)
        more.set()
        found = await asyncio.gather(*tasks)
        assert places.taken == Counter()
        return found

    assert asyncio.run(run("aaabcd")) == [429, 429, 200, 200, 200, 200]
    assert asyncio.run(run("aaaabb")) == [429, 200, 200, 429, 200, 200]
    assert asyncio.run(run("aabbc", asyncio.Event.set)) == [200, 200, 200, 200, 429]


@hypothesis.given(
    busy=st.lists(st.sampled_from([0.0, 0.15, 0.3]), min_size=1, max_size=4),
    parts=st.integers(1, 3),
)
@hypothesis.settings(max_examples=15, deadline=None)
def test_time_of_a_late_event_loop_is_not_the_time_of_a_body(busy: list[float], parts: int) -> None:
    """The parts are there, but the loop does something else for longer than the body's time."""

    async def run() -> bytes:
        loop, left = asyncio.get_running_loop(), [b"x"] * parts

        async def receive() -> dict[str, object]:
            arrived = loop.create_future()
            loop.call_later(0.02, lambda: arrived.done() or arrived.set_result(None))
            for seconds in busy:
                loop.call_soon(time.sleep, seconds)
            await arrived
            left.pop()
            return {"type": "http.request", "body": b"x", "more_body": left != []}

        return (await (await body().read(receive))())["body"]  # type: ignore[no-any-return]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "SLOW_SECONDS", 0.1)
        assert asyncio.run(run()) == b"x" * parts


DAMAGED = {
    "no size": b"zz\r\n",
    "a negative size": b"-1\r\nx\r\n",
    "a size of 65 bits": b"10000000000000000\r\n",
    "no end of the part": b"1\r\nxXX0\r\n\r\n",
    "bare line feeds": b"1\nx\n0\n\n",
    "200 trailers": b"1\r\nx\r\n0\r\n" + b"X: a\r\n" * 200 + b"\r\n",
    "a damaged trailer": b"1\r\nx\r\n0\r\n: bad\r\n\r\n",
    "an extension of 17 kB": b"1;" + b"a" * 17_000 + b"\r\nx\r\n0\r\n\r\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_chunks_are_answered_in_the_form_of_the_service(
    server: Server, content: bytes
) -> None:
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-type: image/jpeg\r\n\r\n")
    head, _, answer = exchange(server, head % b"/api/v1/search/image" + content).partition(
        b"\r\n\r\n"
    )
    assert head.startswith(b"HTTP/1.1 400"), head
    assert b"nosniff" in head
    assert set(json.loads(answer)) == {"error"}
