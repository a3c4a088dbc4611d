"""Searches that a second release repeats after the clients have their answers."""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

logger = logging.getLogger(__name__)
WAITING = 64
"""Searches that wait; further ones are dropped."""
NICENESS = 10


def shadow_executor() -> ThreadPoolExecutor:
    """Return a thread of low priority: it computes when the threads that answer clients leave time."""
    return ThreadPoolExecutor(1, "shadow", _lower_priority)


class Shadow:
    """Queue of searches to repeat, one at a time."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(WAITING)

    def offer(self, repeat: Callable[[], Awaitable[None]]) -> bool:
        """Let a search be repeated; return False if it is dropped because too many wait."""
        try:
            self._queue.put_nowait(repeat)
        except asyncio.QueueFull:
            return False
        return True

    async def run(self) -> None:
        """Repeat searches until the task is canceled."""
        while True:
            repeat = await self._queue.get()
            try:
                await repeat()
            except Exception:
                logger.exception("a search could not be compared")


def _lower_priority() -> None:
    with suppress(OSError, AttributeError):  # other systems have no priority of a thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
