"""Messages to a server that may be away: kept in order, tried again, and never a reason to stop the work."""

import time
from collections import deque
from collections.abc import Callable

from bifocal.progress import say


class RetryQueue:
    """Sends what is posted, at once if the server is there, or else with a later message or at the end.

    Args:
        name: of the server, for messages.
        passing: whether an error may pass by itself; any other is raised where it occurs.
        pause: seconds after a failure in which nothing is tried, so that a long absence costs the work little.
        clock, sleep: of time, in seconds.
    """

    def __init__(
        self,
        name: str,
        passing: Callable[[Exception], bool],
        pause: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name, self.passing, self.pause, self.clock, self.sleep = name, passing, pause, clock, sleep
        self._waiting: deque[Callable[[], object]] = deque()
        self._not_before = 0.0

    def post(self, send: Callable[[], object]) -> None:
        """Call ``send`` now, or when the server is back; after everything that was posted before."""
        self._waiting.append(send)
        if self.clock() >= self._not_before:
            self._deliver()

    def flush(self, seconds: float) -> int:
        """Deliver what waits, for at most ``seconds``; returns how many messages were given up."""
        deadline = self.clock() + seconds
        while not self._deliver() and self.clock() < deadline:
            self.sleep(min(self.pause, max(0.0, deadline - self.clock())))
        lost = len(self._waiting)
        if lost:
            say(f"{self.name} is still away: {lost} messages are not there, but in manifest and tables of the artifact")
        self._waiting.clear()
        return lost

    def _deliver(self) -> bool:
        while self._waiting:
            try:
                self._waiting[0]()
            except Exception as error:
                if not self.passing(error):
                    self._waiting.popleft()
                    raise
                if self.clock() >= self._not_before:
                    say(f"{self.name} does not answer; the work goes on, {len(self._waiting)} messages wait")
                self._not_before = self.clock() + self.pause
                return False
            self._waiting.popleft()
        return True
