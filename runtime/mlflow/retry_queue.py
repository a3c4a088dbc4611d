"""Queue of requests to a server that may be down: in order, retried, without blocking the caller."""

import time
from collections import deque
from collections.abc import Callable

from bifocal.progress import log_line


class RetryQueue:
    """Sends each request at once, or after ``retry_delay`` seconds with a later request or ``flush`` while the server
    is down; permanent errors are raised, see ``is_transient``.
    """

    def __init__(
        self,
        name: str,
        is_transient: Callable[[Exception], bool],
        retry_delay: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name, self.is_transient, self.retry_delay = name, is_transient, retry_delay
        self.clock, self.sleep = clock, sleep
        self._pending: deque[Callable[[], object]] = deque()
        self._retry_at = 0.0

    def submit(self, send: Callable[[], object]) -> None:
        """Call ``send`` after all earlier requests: now, or when the server is up again."""
        self._pending.append(send)
        if self.clock() >= self._retry_at:
            self._send_pending()

    def flush(self, seconds: float) -> int:
        """Send the pending requests within ``seconds``; drop the rest and return its number."""
        deadline = self.clock() + seconds
        while not self._send_pending() and self.clock() < deadline:
            self.sleep(min(self.retry_delay, max(0.0, deadline - self.clock())))
        dropped = len(self._pending)
        if dropped:
            log_line(
                f"{self.name} is still down: {dropped} requests are dropped; "
                "the artifact's manifest and tables have their values"
            )
        self._pending.clear()
        return dropped

    def _send_pending(self) -> bool:
        """Whether all pending requests were sent."""
        while self._pending:
            try:
                self._pending[0]()
            except Exception as error:
                if not self.is_transient(error):
                    self._pending.popleft()
                    raise
                if self.clock() >= self._retry_at:
                    log_line(
                        f"{self.name} does not answer; the stage continues, {len(self._pending)} requests are pending"
                    )
                self._retry_at = self.clock() + self.retry_delay
                return False
            self._pending.popleft()
        return True
