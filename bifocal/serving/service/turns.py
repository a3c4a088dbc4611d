"""Computations of requests: clients take turns, so a client that asks for much waits for itself."""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, MutableSequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")


class Client(NamedTuple):
    """Client of a request.

    Attributes:
        payer: its key, or else its address, which takes turns and pays for work.
        name: a random text of a tab of the page, or else the payer: the same release of a
            comparison answers it.
        seconds: processor time of each computation of the request.
    """

    payer: str
    name: str
    seconds: MutableSequence[float]


NOBODY = Client("", "", deque(maxlen=0))
client_of_request = ContextVar("client_of_request", default=NOBODY)
MOST_SECONDS = 0.75
"""Processor time of a request, after which it encodes no further sentences and images."""


def timed(function: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """Return the result of a function, and its processor time in s."""
    start = time.thread_time()
    return function(*arguments), time.thread_time() - start


def spend(timed: tuple[T, float]) -> T:
    """Count the seconds of a result for the request, and return the result."""
    client_of_request.get().seconds.append(timed[1])
    return timed[0]


def check_spent() -> None:
    """Raise 413 if the request has taken ``MOST_SECONDS``."""
    if sum(client_of_request.get().seconds) > MOST_SECONDS:
        raise HTTPException(
            413,
            f"the request takes more than {MOST_SECONDS:g} s of processor time: send fewer or "
            "shorter sentences, or fewer or smaller images, at a time",
        )


class Turns:
    """Slots for which clients wait in turn, with a thread for each.

    Args:
        slots: of all clients.
        of_client: slots of one client at a time; 0 for all.
        initializer: is called in each thread.
    """

    def __init__(
        self, slots: int, of_client: int = 0, initializer: Callable[[], None] | None = None
    ) -> None:
        self.executor = ThreadPoolExecutor(
            slots + 1, "bifocal", initializer
        )  # a batch of all clients has no slot
        self._free, self._of_client = slots, of_client or slots
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot, and keep it."""
        client, granted = client_of_request.get().payer, asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(granted)
        self._grant()
        try:
            await granted
            yield
        finally:
            if not granted.cancelled():
                self._free += 1
                self._taken[client] -= 1
                if not self._taken[client]:
                    del self._taken[client]
                self._grant()

    def _grant(self) -> None:
        while self._free:
            client = next(
                (name for name in self._waiting if self._taken[name] < self._of_client), None
            )
            if client is None:
                return
            waiting = self._waiting[client]
            granted = waiting.popleft()
            self._waiting.move_to_end(client)
            if not waiting:
                del self._waiting[client]
            if not granted.cancelled():
                granted.set_result(None)
                self._free -= 1
                self._taken[client] += 1

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function that computes, in a thread; a ``ValueError`` becomes
        400."""
        async with self.turn():
            try:
                loop = asyncio.get_running_loop()
                return spend(await loop.run_in_executor(self.executor, timed, function, *arguments))
            except ValueError as error:
                raise HTTPException(400, str(error)[:1000]) from error


class Threads:
    """Threads of a service: quick searches have their own, and no other work delays them. A client
    has one thread of each kind at a time."""

    def __init__(self, count: int, initializer: Callable[[], None] | None = None) -> None:
        self.searches, self.others = (
            Turns(count, of_client=1, initializer=initializer) for _ in range(2)
        )

    def close(self) -> None:
        """Start no further work."""
        for turns in (self.searches, self.others):
            turns.executor.shutdown(wait=False, cancel_futures=True)
