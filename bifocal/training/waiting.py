"""Waiting of the processes that train together: which of them is late, and how long to wait.

Each process publishes the number of its exchanges in the store of ``torch.distributed``. One that
waits compares: a process with fewer exchanges is late.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

import torch.distributed as dist

from bifocal.progress import log_line

STEP_LIMIT = timedelta(minutes=10)
"""Of the exchanges of a training step, which all processes reach at about the same time."""
LIMIT = timedelta(hours=2)
"""Of the other ones: rank 0 validates while the other processes wait."""
SILENT_SECONDS, LOOK_SECONDS = 60.0, 5.0
"""Waiting without a line, and interval between two looks at the other processes."""
LOST = re.compile("timed out|connection|by peer|socket|network|broken pipe|no route", re.IGNORECASE)


class Exchanges:
    """Exchanges of this process with the others, in a group with the limit of a training step."""

    def __init__(self) -> None:
        self.steps = dist.new_group(timeout=STEP_LIMIT)
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._count, self._since = 0, 0.0  # of the running exchange; 0: none is running
        self._seen = [0] * self._size  # the counts of all processes at the last look
        self._ended = threading.Event()
        self._store = dist.distributed_c10d._get_default_store()
        self._store.set(f"exchanges/{self._rank}", "0")
        dist.barrier()  # each process has its number
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the exchange in the block; ``OSError`` if another process does not answer."""
        self._count += 1
        self._since = time.time()
        try:
            yield
        except RuntimeError as error:
            if not LOST.search(str(error)):
                raise
            text = str(error).strip().splitlines()[0]
            raise OSError(
                f"{self._late()} did not answer since {self._time()} ({text}): start the training "
                "again on all machines, it resumes at the last checkpoint"
            ) from error
        finally:
            self._since = 0.0

    def end(self) -> None:
        """Stop publishing."""
        self._ended.set()
        # The interpreter aborts if it ends while the thread is in a call of the store. Such a call
        # returns soon, except where the host of the store does not answer.
        self._watcher.join(10)

    def _watch(self) -> None:
        said = 0
        with suppress(RuntimeError):  # the process with the store has ended
            while not self._ended.wait(LOOK_SECONDS):
                self._store.set(f"exchanges/{self._rank}", str(self._count))
                self._seen = [
                    int(self._store.get(f"exchanges/{rank}")) for rank in range(self._size)
                ]
                since, count = self._since, self._count
                if since and time.time() - since > SILENT_SECONDS and said != count:
                    log_line(f"waiting for {self._late()} since {self._time()}")
                    said = count

    def _late(self) -> str:
        late = [
            str(rank)
            for rank, count in enumerate(self._seen)
            if count < self._count and rank != self._rank
        ]
        return f"rank {', '.join(late)}" if late else "the other processes"

    def _time(self) -> str:
        return f"{datetime.fromtimestamp(self._since):%H:%M:%S}"
