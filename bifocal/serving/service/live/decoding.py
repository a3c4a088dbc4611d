"""Image files are decoded in processes with a deadline and a memory limit, so that none of them delays a search."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from anyio import BrokenWorkerProcess, CapacityLimiter, to_process
from starlette.exceptions import HTTPException

from bifocal.onnx.images import LargeImageError, UnsupportedImageError

T = TypeVar("T")
NICENESS = 5
STATM = Path("/proc/self/statm")
"""Memory of this process on Linux, in pages; the memory of other systems is not limited."""
_limited = False


class Decoders:
    """Processes that decode image files. A process that exceeds a limit is killed, and a new one decodes the next file.

    Args:
        processes: files that are decoded at a time.
        seconds: for one file; 0 for any time.
        memory: bytes of one process, above its interpreter and packages; 0 for any memory.
    """

    def __init__(self, processes: int, seconds: float, memory: int) -> None:
        self.seconds, self.memory = seconds, memory
        self._processes, self._free = processes, asyncio.Semaphore(processes)
        self._limiter: CapacityLimiter | None = None

    async def start(self) -> None:
        """Start a process, so that the first file does not wait for it."""
        self._limiter = self._limiter or CapacityLimiter(self._processes)
        await to_process.run_sync(limit_process, self.memory, limiter=self._limiter)

    async def run(self, decode: Callable[..., T], *arguments: object) -> T:
        """Return the result of a function that decodes an image file; raise 400, 413 or 415 for another file."""
        async with self._free:
            try:
                await self.start()
                async with asyncio.timeout(self.seconds or None):
                    return await to_process.run_sync(decode, *arguments, cancellable=True, limiter=self._limiter)
            except TimeoutError as error:
                raise HTTPException(413, f"the image was not decoded within {self.seconds:g} s") from error
            except BrokenWorkerProcess as error:
                raise HTTPException(400, "the image cannot be decoded: its decoder failed") from error
            except ValueError as error:
                raise refusal(error) from error


def refusal(error: ValueError) -> HTTPException:
    """Return the answer to an image file that is not accepted: 413 above a limit, 415 of another format, else 400."""
    status = 413 if isinstance(error, LargeImageError) else 415 if isinstance(error, UnsupportedImageError) else 400
    return HTTPException(status, str(error)[:1000])


def limit_process(memory: int) -> None:
    """Limit the memory of this process, and let searches go first; load what decoding needs."""
    global _limited
    if _limited:
        return
    import bifocal.onnx.pixels
    import bifocal.serving.service.live.thumbnails  # noqa: F401

    if memory and STATM.is_file():
        import resource

        pages = int(STATM.read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (memory + pages * resource.getpagesize(),) * 2)
    if hasattr(os, "nice"):  # Windows has none
        os.nice(NICENESS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries of formats write warnings, and the log is JSON
    _limited = True
