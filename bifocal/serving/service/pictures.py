"""Image files in processes with a deadline and a memory limit, and small pictures of the items,
without metadata."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from anyio import BrokenWorkerProcess, CapacityLimiter, to_process
from PIL import Image
from starlette.exceptions import HTTPException

from bifocal.onnx.image_limits import count_scans, max_pixels
from bifocal.onnx.images import (
    LargeImageError,
    UnsupportedImageError,
    decode_image,
    open_header,
)
from bifocal.onnx.pixels import DecodedImage, decode_pixels
from bifocal.serving.service.turns import Turns, spend, timed

SIDES = (256, 512, 1024)
"""Longest sides of a thumbnail, pixels."""
QUALITY = 80
NICENESS = 5
QUICK_PIXELS = 2**24
"""Pixels of a file whose decoding does not delay other clients for long."""
STATM = Path("/proc/self/statm")
"""Memory of this process on Linux, in pages; the memory of other systems is not limited."""
Opener = Callable[[], BufferedReader]
T = TypeVar("T")
_limited = False


class NoImageError(ValueError):
    """The image file is missing, or outside its folder."""


class Decoders:
    """Processes that decode image files. A process that exceeds a limit is killed, and a new one
    decodes the next file.

    Args:
        processes: files that are decoded at a time.
        seconds: for one file; 0 for any time.
        memory: bytes of one process, above its interpreter and packages; 0 for any memory.
    """

    def __init__(self, processes: int, seconds: float, memory: int) -> None:
        self.seconds, self.memory = seconds, memory
        self._processes, self._turns = processes, Turns(processes)
        self._limiter: CapacityLimiter | None = None

    async def start(self) -> None:
        """Start a process, so that the first file does not wait for it."""
        self._limiter = self._limiter or CapacityLimiter(self._processes)
        await to_process.run_sync(limit_process, self.memory, limiter=self._limiter)

    async def run(self, decode: Callable[..., T], *arguments: object) -> T:
        """Return the result of a function that decodes an image file; raise 400, 413 or 415 for
        another file."""
        async with self._turns.turn():
            try:
                await self.start()
                async with asyncio.timeout(self.seconds or None):
                    return spend(
                        await to_process.run_sync(
                            timed,
                            decode,
                            *arguments,
                            cancellable=True,
                            limiter=self._limiter,
                        )
                    )
            except TimeoutError as error:
                raise HTTPException(
                    413, f"the image was not decoded within {self.seconds:g} s"
                ) from error
            except BrokenWorkerProcess as error:
                raise HTTPException(
                    400, "the image cannot be decoded: its decoder failed"
                ) from error
            except ValueError as error:
                raise refusal(error) from error


def refusal(error: ValueError) -> HTTPException:
    """Return the answer to a rejected image file: 404 for a missing one, 413 above a limit, 415 for
    another format, else 400."""
    statuses = {NoImageError: 404, LargeImageError: 413, UnsupportedImageError: 415}
    return HTTPException(statuses.get(type(error), 400), str(error)[:1000])


def opened(open_file: Opener) -> BufferedReader:
    """Open the image file of an item; raise ``NoImageError``, which does not name its folder."""
    try:
        return open_file()
    except (OSError, ValueError) as error:
        raise NoImageError("this machine does not have the image of this item") from error


def read_opened(read: Callable[[bytes], T], open_file: Opener) -> T:
    """Return ``read`` of the image file of an item."""
    with opened(open_file) as file:
        return read(file.read())


def file_state(open_file: Opener) -> os.stat_result:
    """Return size and times of the image file of an item."""
    with opened(open_file) as file:
        return os.fstat(file.fileno())


def limit_process(memory: int) -> None:
    """Limit the memory of this process, and let searches go first; load what decoding needs."""
    global _limited
    if _limited:
        return

    if memory and STATM.is_file():
        import resource

        pages = int(STATM.read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (memory + pages * resource.getpagesize(),) * 2)
    if hasattr(os, "nice"):  # Windows has none
        os.nice(NICENESS)
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), 2
    )  # libraries of formats write warnings, and the log is JSON
    _limited = True


class ThumbnailCache:
    """Thumbnails in memory; nothing is written to disk.

    Args:
        run: calls ``thumbnail`` outside the event loop.
        max_bytes: of all thumbnails.
    """

    def __init__(self, run: Callable[..., Awaitable[bytes]], max_bytes: int = 64 * 2**20) -> None:
        self._run, self.max_bytes = run, max_bytes
        self._kept: OrderedDict[tuple[str, int], tuple[int, bytes]] = OrderedDict()
        self._size = 0

    async def get(self, item_id: str, open_file: Opener, side: int) -> bytes:
        """Return the JPEG of an image whose longer side has at most ``side`` pixels."""
        try:
            changed = (await asyncio.to_thread(file_state, open_file)).st_mtime_ns
        except NoImageError as error:
            self.drop(item_id)
            raise refusal(error) from error
        state, kept = self._kept.get((item_id, side), (None, b""))
        if state == changed:
            self._kept.move_to_end((item_id, side))
            return kept
        made = await self._run(thumbnail, open_file, side)
        self._remove(item_id, side)
        self._kept[item_id, side] = changed, made
        self._size += len(made)
        while self._size > self.max_bytes:
            self._remove(*next(iter(self._kept)))
        return made

    def drop(self, item_id: str) -> None:
        """Remove the thumbnails of an item."""
        for side in SIDES:
            self._remove(item_id, side)

    def keep(self, item_ids: Container[str]) -> None:
        """Remove the thumbnails of all other items."""
        for item_id, side in [key for key in self._kept if key[0] not in item_ids]:
            self._remove(item_id, side)

    def _remove(self, item_id: str, side: int) -> None:
        self._size -= len(self._kept.pop((item_id, side), (0, b""))[1])


def decode_quick(file: bytes, preprocessing: Any, *limits: Any) -> DecodedImage | None:
    """Return ``decode_pixels`` of a file with few pixels, None for others; four scans of a JPEG
    count as one more image."""
    with open_header(BytesIO(file), *limits) as image:
        price = image.width * image.height * (1 + count_scans(file) // 4)
    return decode_pixels(file, preprocessing, *limits) if price <= QUICK_PIXELS else None


def media_type(file: BufferedReader) -> str:
    """Return the media type of an image file by its header; ``ValueError`` for any other file."""
    try:
        with open_header(file) as image:
            return str(image.get_format_mimetype())
    except (OSError, ValueError) as error:
        raise ValueError("the original is not an image that can be read") from error


def thumbnail(open_file: Opener, side: int) -> bytes:
    """Return a JPEG with at most ``side`` pixels along its longer side, in sRGB and without any
    metadata."""
    buffer = BytesIO()
    with opened(open_file) as file:
        image = decode_image(file, max_pixels(), side)
    image.thumbnail((side, side))
    # Pillow would copy the metadata of a decoded image to the new file.
    Image.fromarray(np.asarray(image)).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
