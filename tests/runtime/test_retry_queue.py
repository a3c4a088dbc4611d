"""The mailbox with a clock of its own: order, pauses, and what it gives up."""

from dataclasses import dataclass, field

import pytest

from runtime.mlflow.retry_queue import RetryQueue

PAUSE = 10.0


@dataclass
class Server:
    away: bool = False
    got: list[int] = field(default_factory=list)
    tried: int = 0
    now: float = 0.0

    def take(self, message: int) -> None:
        self.tried += 1
        if self.away:
            raise ConnectionError("refused")
        self.got.append(message)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= 100:
            self.away = False


def mailbox(server: Server) -> RetryQueue:
    return RetryQueue(
        "it", lambda error: isinstance(error, OSError), PAUSE, clock=lambda: server.now, sleep=server.sleep
    )


def test_what_was_posted_while_it_was_away_comes_in_order_before_what_follows() -> None:
    server = Server()
    box = mailbox(server)
    for message in range(10):
        server.away = 2 <= message < 7
        server.now += PAUSE
        box.post(lambda message=message: server.take(message))
    assert server.got == list(range(10))


def test_a_long_absence_is_noticed_once_in_a_pause() -> None:
    server = Server(away=True)
    box = mailbox(server)
    for message in range(50):
        box.post(lambda message=message: server.take(message))
    assert server.tried == 1
    assert box.flush(seconds=200) == 0
    assert server.got == list(range(50))


def test_the_end_waits_no_longer_than_it_was_told() -> None:
    server = Server(away=True)
    box = mailbox(server)
    box.post(lambda: server.take(1))
    assert box.flush(seconds=30) == 1
    assert server.now == pytest.approx(30)
    assert box.flush(seconds=30) == 0


def test_an_error_that_will_not_pass_is_raised_and_stops_nothing_else() -> None:
    server = Server()
    box = mailbox(server)

    def wrong() -> None:
        raise ValueError("no such metric")

    with pytest.raises(ValueError, match="no such metric"):
        box.post(wrong)
    box.post(lambda: server.take(1))
    assert server.got == [1]
