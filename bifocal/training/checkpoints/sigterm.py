"""SIGTERM: finish the current step, save the state, and exit."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EXIT_CODE = 128 + signal.SIGTERM


@contextmanager
def sigterm_guard() -> Iterator[Callable[[], bool]]:
    """Hold back SIGTERM in the context, in the main thread only; yield a function that says whether it has arrived."""
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield received.is_set
        return
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.set())
    try:
        yield received.is_set
    finally:
        signal.signal(signal.SIGTERM, previous)
