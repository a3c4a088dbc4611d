"""Half-sent headers: they are closed after a time, and never keep another connection from its answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from bifocal.serving.service.connections import limit_connections
from tests.mlflow_server import free_port

HALF, WHOLE = b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answer_alive(scope: object, receive: object, send: Callable[..., Awaitable[None]]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"alive"})


async def serve(test: Callable[[Callable[[bytes], Awaitable[Streams]]], Awaitable[None]], **limits: float) -> None:
    port, protocol = free_port(), limit_connections(AutoHTTPProtocol, **limits)  # type: ignore[arg-type]
    config = uvicorn.Config(answer_alive, port=port, http=protocol, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)

    async def connect(data: bytes) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        return reader, writer

    try:
        await test(connect)
    finally:
        server.should_exit = server.force_exit = True
        await task


async def closed(streams: Streams, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return not await streams[0].read()
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_late_headers_are_closed_also_of_a_further_request() -> None:
    async def test(connect: Callable[[bytes], Awaitable[Streams]]) -> None:
        silent, half, further = await connect(b""), await connect(HALF), await connect(WHOLE)
        assert (await further[0].readuntil(b"alive")).startswith(b"HTTP/1.1 200")
        further[1].write(HALF)
        start = time.monotonic()
        assert await closed(silent, 20)
        assert await closed(half, 20)
        for _ in range(100):  # further bytes give no further time
            if further[0].at_eof() or further[0].exception():
                break
            further[1].write(b"y")
            await asyncio.sleep(0.05)
        assert await closed(further, 20)
        assert time.monotonic() - start < 30

    asyncio.run(serve(test, seconds=0.5))


def test_the_oldest_waiting_connections_make_room() -> None:
    async def test(connect: Callable[[bytes], Awaitable[Streams]]) -> None:
        waiting = [await connect(HALF) for _ in range(12)]
        answered = await connect(WHOLE)
        assert (await answered[0].readuntil(b"alive")).startswith(b"HTTP/1.1 200")
        states = [await closed(streams, 0.3) for streams in waiting]
        assert states == [True] * 9 + [False] * 3  # a connection waited while it was answered

    asyncio.run(serve(test, of_address=4))


def test_a_header_that_is_on_its_way_is_answered() -> None:
    async def test(connect: Callable[[bytes], Awaitable[Streams]]) -> None:
        first = await connect(HALF)
        others = [await connect(HALF) for _ in range(8)]
        first[1].write(b"1\r\n\r\n")
        assert (await first[0].readuntil(b"alive")).startswith(b"HTTP/1.1 200")
        assert await closed(others[0], 20)

    asyncio.run(serve(test, of_address=4))
