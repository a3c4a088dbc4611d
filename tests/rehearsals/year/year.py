"""A year without an operator, with the real servers, and its bars: ``make rehearse-year``.

Clients search all the time, through nginx before two replicas, and check each answer against the
vectors; ``weeks.py`` has the events.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bifocal.progress import log_line
from bifocal.search.trained_model import TrainedModel
from components.cluster import canary
from tests.rehearsals.servers.debian import POSTGRES, nginx, postgresql
from tests.rehearsals.year.fleet import SECONDS, Clients
from tests.rehearsals.year.weeks import SEARCHES, Year

WEEKS, WEEK_8 = int(os.environ.get("WEEKS", "52")), 8
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(0),
    pytest.mark.skipif(
        POSTGRES is None, reason="PostgreSQL is not installed: Debian's package postgresql-15"
    ),
    pytest.mark.skipif(
        shutil.which("nginx") is None, reason="nginx is not installed: Debian's package nginx-light"
    ),
]


def bars(state: Year, clients: Clients) -> Iterator[tuple[str, object, bool]]:
    """Yield each measured value with its bar, and whether it is met."""
    last, eighth = state.disk[max(state.disk)], state.disk[min(WEEK_8, max(state.disk))]
    ratios = {name: round(last[name] / eighth[name], 2) for name in last}
    least, whole = (
        (10_000 if WEEKS == 52 else SEARCHES * WEEKS),
        sum(last.values()) / sum(eighth.values()),
    )
    returned = sum("deleted" in fault for fault in clients.faults)
    yield f"answers, at least {least:,}", clients.answers, clients.answers >= least
    yield "failed or wrong answers, at most 0", len(clients.faults), not clients.faults
    yield "returned deletions, at most 0", returned, returned == 0
    yield "weeks with a false alarm, at most 3", state.alarms, len(state.alarms) <= 3
    yield f"disk at the end over week 8, at most 2 ({ratios})", round(whole, 2), whole <= 2


@pytest.fixture
def year(
    demo: TrainedModel, s3: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Year, Clients]]:
    """The servers and the clients, which search already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    monkeypatch.setattr(canary, "LOOK_SECONDS", 1.0)
    for module in ("tests.mlflow_server", "tests.bifocal.serving.server"):  # beside other work
        monkeypatch.setattr(f"{module}.START_SECONDS", SECONDS)
    with ExitStack() as stack:
        year = Year(tmp_path, demo, stack.enter_context(postgresql()))
        stack.callback(year.registry.kill)
        stack.callback(year.replicas.kill)
        year.start()
        port = stack.enter_context(
            nginx(tmp_path, [server.port for server in year.replicas.servers])
        )
        clients = Clients(port, year.truth, year.texts, year.vectors)
        clients.start()
        yield year, clients
        clients.stopped.set()
        clients.join(60)


def test_a_year(year: tuple[Year, Clients]) -> None:
    state, clients = year
    for week in range(1, WEEKS + 1):
        state.week(week, clients)
    log_line(f"events: {state.events}")
    missed = []
    for name, value, met in bars(state, clients):
        log_line(f"{name}: {value} {'ok' if met else 'MISS'}")
        missed += [] if met else [name]
    log_line("\n".join(clients.faults[:10]))
    assert missed == []
