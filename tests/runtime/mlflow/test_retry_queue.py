"""Retry queue with a simulated clock: order, retry delay and dropped requests."""

from dataclasses import dataclass, field

import pytest

from runtime.mlflow.retry_queue import RetryQueue

DELAY = 10.0


@dataclass
class Server:
    """A server that is up again after 100 simulated seconds."""

    down: bool = False
    received: list[int] = field(default_factory=list)
    attempts: int = 0
    now: float = 0.0

    def receive(self, message: int) -> None:
        self.attempts += 1
        if self.down:
            raise ConnectionError("refused")
        self.received.append(message)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= 100:
            self.down = False


def make_queue(server: Server) -> RetryQueue:
    return RetryQueue(
        "server", lambda error: isinstance(error, OSError), DELAY, clock=lambda: server.now, sleep=server.sleep
    )


def test_requests_of_an_outage_are_sent_in_order_before_later_ones() -> None:
    server = Server()
    queue = make_queue(server)
    for message in range(10):
        server.down = 2 <= message < 7
        server.now += DELAY
        queue.submit(lambda message=message: server.receive(message))
    assert server.received == list(range(10))


def test_server_that_is_down_is_tried_once_per_retry_delay() -> None:
    server = Server(down=True)
    queue = make_queue(server)
    for message in range(50):
        queue.submit(lambda message=message: server.receive(message))
    assert server.attempts == 1
    assert queue.flush(seconds=200) == 0
    assert server.received == list(range(50))


def test_flush_waits_no_longer_than_its_timeout() -> None:
    server = Server(down=True)
    queue = make_queue(server)
    queue.submit(lambda: server.receive(1))
    assert queue.flush(seconds=30) == 1
    assert server.now == pytest.approx(30)
    assert queue.flush(seconds=30) == 0


def test_permanent_error_is_raised_and_later_requests_are_sent() -> None:
    server = Server()
    queue = make_queue(server)

    def invalid_request() -> None:
        raise ValueError("no such metric")

    with pytest.raises(ValueError, match="no such metric"):
        queue.submit(invalid_request)
    queue.submit(lambda: server.receive(1))
    assert server.received == [1]
