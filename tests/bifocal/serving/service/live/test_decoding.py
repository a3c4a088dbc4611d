"""Processes that decode image files: results, limits, and their replacement."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from bifocal.onnx.pixels import decode_pixels
from bifocal.serving.service.live.decoding import Decoders

SQUARE = {"size": 32, "interpolation": "bicubic"}


def file(mode: str = "RGB", side: int = 64, form: str = "PNG") -> bytes:
    buffer = BytesIO()
    Image.linear_gradient("L").resize((side, side)).convert(mode).save(buffer, form)
    return buffer.getvalue()


def answers(decoders: Decoders, *calls: tuple[Any, ...]) -> list[Any]:
    """Results or refusals of calls, one after the other in one event loop."""

    async def answer() -> list[Any]:
        found: list[Any] = []
        for function, *arguments in calls:
            try:
                found.append(await decoders.run(function, *arguments))
            except HTTPException as refusal:
                found.append((refusal.status_code, refusal.detail))
        return found

    return asyncio.run(answer())


def test_results_are_those_of_this_process_and_limits_are_refused() -> None:
    large = file("RGBA", 6_000)
    pid, image, bomb, again, other, after = answers(
        Decoders(1, 60, 200_000_000), (os.getpid,), (decode_pixels, file(), SQUARE), (decode_pixels, large, SQUARE),
        (decode_pixels, file(), SQUARE, 100), (decode_pixels, b"%PDF", SQUARE), (os.getpid,),
    )  # fmt: skip
    assert pid != os.getpid()
    assert pid == after
    np.testing.assert_array_equal(image.pixels, decode_pixels(file(), SQUARE).pixels)
    assert image[1:] == (64, 64)
    assert bomb == (413, "decoding it needs too much memory")
    assert again == (413, "64 x 64 pixels, more than max_pixels 100")
    assert other[0] == 415


def test_a_process_that_hangs_or_ends_is_replaced() -> None:
    start = time.monotonic()
    first, hung, second, ended, third = answers(
        Decoders(1, 0.5, 0), (os.getpid,), (time.sleep, 100), (os.getpid,), (os._exit, 1), (os.getpid,)
    )
    assert hung == (413, "the image was not decoded within 0.5 s")
    assert ended == (400, "the image cannot be decoded: its decoder failed")
    assert len({first, second, third}) == 3
    assert time.monotonic() - start < 60
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_the_event_loop_goes_on_while_an_image_is_decoded() -> None:
    async def longest_pause(work: Callable[[], Awaitable[Any]]) -> float:
        task, longest = asyncio.ensure_future(work()), 0.0
        while not task.done():
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - before)
        await task
        return longest

    async def run() -> float:
        decoders = Decoders(1, 60, 0)
        await decoders.start()
        return await longest_pause(partial(decoders.run, time.sleep, 0.7))

    assert asyncio.run(run()) < 0.6
