"""SIGTERM: the present step is finished, the state is saved, and the process ends."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EXIT_CODE = 128 + signal.SIGTERM


@contextmanager
def termination() -> Iterator[Callable[[], bool]]:
    """Inside, SIGTERM ends nothing: the function that is given says whether it has come.

    Only the main thread may receive signals; in another one they do what they did before.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    former = signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, former)
