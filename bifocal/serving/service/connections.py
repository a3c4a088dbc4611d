"""Connections that wait for the header of a request: each has a deadline, and the oldest of an address make room."""

import asyncio
from collections import defaultdict
from typing import Any

HEADER_SECONDS = 10.0
WAITING, WAITING_OF_ADDRESS = 512, 64
LAST_SECONDS = 0.25
"""Time for the header of a connection that is to be closed for a new one: it may be on its way."""


def limit_connections(
    protocol: Any, seconds: float = HEADER_SECONDS, waiting: int = WAITING, of_address: int = WAITING_OF_ADDRESS
) -> type[asyncio.Protocol]:
    """Return a protocol of uvicorn that closes connections whose header is late or that are too many.

    A new connection closes the oldest that waits for a header, so that a probe is answered beside any number of them.

    Args:
        protocol: class with ``transport`` and ``cycle``, such as ``uvicorn.protocols.http.auto.AutoHTTPProtocol``.
        seconds: from the start of a connection, or the first byte of a further request, to the end of the header.
        waiting: connections of all addresses that wait.
        of_address: connections of one address that wait.
    """
    timers: dict[Any, asyncio.TimerHandle] = {}
    addresses: defaultdict[str, dict[Any, None]] = defaultdict(dict)  # a dict keeps the order

    class LimitedProtocol(protocol):  # type: ignore[misc] # the base is known when the server starts
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.ending: asyncio.TimerHandle | None = None
            self.address = str((transport.get_extra_info("peername") or ("",))[0])
            self.wait()

        def data_received(self, data: bytes) -> None:
            if not self.is_answering():
                self.wait()
            super().data_received(data)
            if self.is_answering():
                self.forget()

        def connection_lost(self, exc: Exception | None) -> None:
            self.forget()
            super().connection_lost(exc)

        def is_answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def wait(self) -> None:
            if self in timers or self.ending is not None or self.transport.is_closing():
                return
            mine = addresses[self.address]
            for others, most in ((mine, of_address), (timers, waiting)):
                if len(others) >= most:
                    next(iter(others)).end()
            timers[self] = asyncio.get_running_loop().call_later(seconds, self.close)
            addresses[self.address][self] = None

        def end(self) -> None:
            self.forget()
            self.ending = asyncio.get_running_loop().call_later(LAST_SECONDS, self.close)

        def close(self) -> None:
            self.forget()
            self.transport.abort()

        def forget(self) -> None:
            if self.ending is not None:
                self.ending.cancel()
                self.ending = None
            if (timer := timers.pop(self, None)) is not None:
                timer.cancel()
                addresses[self.address].pop(self, None)
                if not addresses[self.address]:
                    del addresses[self.address]

    return LimitedProtocol
