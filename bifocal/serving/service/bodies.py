"""Bodies of requests: read only where a route has one, and within a time; incomplete ones make room
for others."""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

from starlette.exceptions import HTTPException

from bifocal.serving.service.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

API, UPLOADS, INFERENCE = "/api/v1/", "/api/v1/search/image", "/v2"
BODIES = re.compile(
    rf"{API}(search|search/image|browse|explain|click|correction)"
    rf"|{INFERENCE}/models/[^/]+(/versions/[^/]+)?/infer"
)
"""Paths whose POST has a body."""
SMALL = 65_536
"""Bytes of a body that a client has sent before it reads the answer."""
SLOW_SECONDS, SLOW_BYTES = 2.0, 1024
"""A body has this time, and after it this rate per second on average."""
LOOK_SECONDS, LATE_SECONDS = 0.25, 0.005
"""Between two looks at a deadline; the event loop is late if it looks after more than this."""
PARTS, PART_BYTES = 1000, 256
"""A body may come in this number of parts, and in more of this average size: the event loop handles
each."""


def too_many() -> HTTPException:
    """Return the answer to a request without a place."""
    return HTTPException(429, "too many requests at a time: try again", {"retry-after": "1"})


class Disconnected(Exception):
    """The client went away before its body was complete, or does not read its answer."""


class Body:
    """Body of a request.

    Attributes:
        address: of the client.
        is_upload: whether it may hold image files; a body of sentences is small.
        unread: whether the client sends a body that is not read, so that its connection must be
            closed.
        incomplete: whether the rest of the body is waited for.
        received: bytes.
    """

    def __init__(self, scope: Message, address: str, settings: Settings) -> None:
        self.address, self._seconds, headers = (
            address,
            settings.body_seconds,
            dict(scope["headers"]),
        )
        length, path = headers.get(b"content-length", b"0"), scope["path"]
        self._size = int(length[:19]) if length.isdigit() else None
        self._chunked = b"transfer-encoding" in headers
        self._is_plain = headers.get(b"content-encoding", b"identity").lower() == b"identity"
        self._expected = scope["method"] == "POST" and BODIES.fullmatch(path) is not None
        self._may_be_chunked = path == UPLOADS
        small = path.startswith(API) or (
            self._size is not None and self._size <= settings.max_body_bytes
        )
        self.is_upload = self._expected and (path == UPLOADS or not small)
        self._limit = settings.limits.image_bytes if self.is_upload else settings.max_body_bytes
        self.unread, self.incomplete = self._chunked or self._size != 0, False
        self.received, self._end, self._due, self._late = 0, math.inf, math.inf, 0.0
        self._deadline = asyncio.Timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, receive: Receive) -> Receive:
        """Read the body if the route has one; return a ``receive`` that has it."""
        bodies = [await self._read(receive) if self._expected and self.unread else b""]

        async def receive_body() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await receive()  # waits until the client disconnects

        return receive_body

    async def _read(self, receive: Receive) -> bytes:
        too_large = HTTPException(413, f"the body has more than {self._limit} bytes")
        if self._chunked and not self._may_be_chunked:
            raise HTTPException(411, "send the body with Content-Length")
        if not self._is_plain:
            raise HTTPException(
                415, "send the body without Content-Encoding", {"accept-encoding": "identity"}
            )
        if self._size is None:
            raise HTTPException(400, "the header Content-Length is not a number")
        if self._limit and self._size > self._limit:
            raise too_large
        content, more, parts, self.incomplete = bytearray(), True, 0, True
        start = asyncio.get_running_loop().time()
        self._end = start + self._seconds
        try:
            async with self._deadline:
                while more:
                    self._due = start + SLOW_SECONDS + self.received / SLOW_BYTES
                    self._due = min(self._end, self._due)
                    if self._timer is None:
                        self._look(start)
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Disconnected
                    content += message.get("body", b"")
                    more, parts, self.received = (
                        message.get("more_body", False),
                        parts + 1,
                        len(content),
                    )
                    if self._limit and len(content) > self._limit:
                        raise too_large
                    if parts > PARTS + len(content) // PART_BYTES:
                        raise HTTPException(400, "the body is sent in too many small parts")
        except TimeoutError as error:
            if not self._end:
                raise too_many() from error
            raise HTTPException(
                408, f"the body did not arrive within {self._seconds:g} s, or too slowly"
            ) from error
        finally:
            self.incomplete = False
            if self._timer is not None:
                self._timer.cancel()
        self.unread = False
        return bytes(content)

    def _look(self, due: float) -> None:
        """Look at the deadline every ``LOOK_SECONDS``; it moves on by the time for which the event
        loop was late, at most by the whole time: a part of the body may be there unread."""
        loop = asyncio.get_running_loop()
        late = loop.time() - due
        self._late += late
        left = self._due + self._late - loop.time()
        if left <= 0 and (late < LATE_SECONDS or self._late > self._seconds):
            self._deadline.reschedule(loop.time())
            return
        due = loop.time() + min(left if left > 0 else LOOK_SECONDS, LOOK_SECONDS)
        self._timer = loop.call_at(due, self._look, due)

    async def drain(self, receive: Receive) -> None:
        """Discard a large body for some time: if the connection is closed at once, its client loses
        the answer."""
        parts = PARTS if self.unread and not self._chunked and (self._size or 0) > SMALL else 0
        with suppress(TimeoutError):
            async with asyncio.timeout(SLOW_SECONDS):
                while parts and (await receive()).get("more_body", False):
                    parts -= 1

    def end(self) -> None:
        """Wait no longer for the rest of the body."""
        self._end, self.incomplete = 0.0, False
        self._deadline.reschedule(self._end)


class Places:
    """Places of requests, of all addresses and of one.

    If all are taken, an incomplete body loses its place: the smallest of the address that has most
    of them.
    """

    def __init__(self, most: int, of_address: int) -> None:
        self.most, self.of_address = most, of_address
        self.taken: Counter[str] = Counter()
        self._bodies: dict[Body, None] = {}

    @contextmanager
    def take(self, body: Body) -> Iterator[None]:
        """Take a place; raise 429 if all are taken."""
        self.taken[body.address] += 1
        self._bodies[body] = None
        try:
            if self.taken[body.address] > self.of_address:
                raise too_many()
            if self.taken.total() > self.most:
                self._make_room()
            yield
        finally:
            del self._bodies[body]
            self.taken[body.address] -= 1
            if not self.taken[body.address]:
                del self.taken[body.address]

    def _make_room(self) -> None:
        incomplete = [body for body in self._bodies if body.incomplete]
        if not incomplete:
            raise too_many()
        counts = Counter(body.address for body in incomplete)
        max(incomplete, key=lambda body: (counts[body.address], -body.received)).end()
