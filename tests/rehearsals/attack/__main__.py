"""Attack a served demo, and write the table of docs/records/reliability.md.

python -m tests.rehearsals.attack

Each attack is repeated for five seconds. Beside it, another address asks for /healthz every 50 ms
and searches every 200 ms. The run fails after a probe without an answer or above one second, a
search above one second at the 99th percentile (not beside a flood of connections), an answer 500, a
process that ended, more than 2 GiB, a secret in an answer or the log, a file outside. Commands of
the user then open run folders, archives and tables of somebody else.
"""

import os
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from tests.bifocal.serving.server import JSON, Server
from tests.mlflow_server import free_port
from tests.rehearsals.attack.files import attack_files
from tests.rehearsals.attack.inputs import Statuses, attacks, prepare

PAGE = Path(__file__).parents[3] / "docs" / "records" / "reliability.md"
BEGIN, END = (
    "<!-- attacks: written by python -m tests.rehearsals.attack -->",
    "<!-- end of the attacks -->",
)
MOST_MEMORY, MOST_MILLISECONDS = 2 * 2**30, 1000
PROBER = ("127.0.0.2", 0)
SECONDS = 5
SEARCHED = b'{"text": "a red star on sand"}'
FAILED: list[str] = []
COLUMNS = ("attack", "answers", "/healthz, slowest", "search, 99 %", "memory, most")


@dataclass
class Watch:
    """Times in ms of probes and searches beside an attack, and the most memory of the service."""

    server: Server
    probes: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)
    memory: int = 0
    failed: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        process, self.server = self.server.process, Server(self.server.port, self.server.log)
        self.server.process, self.server.source = process, PROBER

    def __enter__(self) -> "Watch":
        self._threads = [threading.Thread(target=run) for run in (self._probe, self._search)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _probe(self) -> None:
        while not self._over.wait(0.05):
            start = time.perf_counter()
            try:
                status = self.server.get("/healthz")[0]
            except OSError as error:
                status = repr(error)
            self.probes.append(1000 * (time.perf_counter() - start))
            self.memory = max(self.memory, memory_of(self.server))
            if status != 200:
                self.failed.append(f"/healthz: {status}")

    def _search(self) -> None:
        while not self._over.wait(0.2):
            start = time.perf_counter()
            try:
                status = self.server.request("POST", "/api/v1/search", SEARCHED, JSON)[0]
            except OSError:
                status = 0
            if status == 200:
                self.searches.append(1000 * (time.perf_counter() - start))
            elif status != 429:
                self.failed.append(f"search: {status}")


def memory_of(server: Server) -> int:
    """Return the resident bytes of the service and its children."""
    assert server.process is not None
    tree, todo = [], [server.process.pid]
    while todo:
        pid = todo.pop()
        try:
            tree.append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]))
            todo += [
                int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            ]
        except (OSError, IndexError, ValueError):
            continue  # it has ended
    return sum(tree) * os.sysconf("SC_PAGE_SIZE")


def attack(server: Server, name: str) -> tuple[str, ...]:
    """Repeat one attack for some seconds beside probes; return the row of the table."""
    statuses, end = Statuses(), time.monotonic() + SECONDS
    with Watch(server) as watch:
        while not statuses or time.monotonic() < end:
            statuses += attacks()[name](server)
    problems = [*watch.failed, *(["an answer 500"] if 500 in statuses else [])]
    if server.process is None or server.process.poll() is not None:
        problems.append("the process has ended")
    searched = np.quantile(watch.searches, 0.99) if watch.searches else np.inf
    if max(watch.probes) > MOST_MILLISECONDS or (
        searched > MOST_MILLISECONDS and "connections" not in name
    ):
        problems.append(f"/healthz {max(watch.probes):.0f} ms, search {searched:.0f} ms")
    if watch.memory > MOST_MEMORY:
        problems.append(f"{watch.memory / 2**20:,.0f} MiB of memory")
    if problems:
        click.echo(f"error: {name}: {'; '.join(problems[:5])}", err=True)
        FAILED.append(name)
    answers = ", ".join(
        f"{count:,} x {status}" for status, count in sorted(statuses.items(), key=str)
    )
    return (
        name,
        answers,
        f"{max(watch.probes):.0f} ms",
        f"{searched:.0f} ms",
        f"{watch.memory / 2**20:,.0f} MiB",
    )


def provoke_failures(folder: Path) -> tuple[str, ...]:
    """Start a service whose registry cannot be reached, with a password in each setting that may
    hold one."""
    secret = secrets.token_hex(16)
    address = f"http://user:{secret}@127.0.0.1:{free_port()}"
    names = (
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "BIFOCAL_API_KEYS",
        "HF_TOKEN",
    )
    environment = (
        os.environ
        | dict.fromkeys(names, secret)
        | {
            "MLFLOW_TRACKING_URI": address,
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "BIFOCAL_ADMIN_KEY": secret,
        }
    )
    command = [
        sys.executable,
        "-m",
        "bifocal",
        "serve",
        "--port",
        str(free_port()),
        "--model",
        "models:/bifocal@champion",
    ]
    server = Server(int(command[5]), folder / "secret.log")
    with server.log.open("wb") as log:
        server.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    seen, deadline = b"", time.monotonic() + 20
    while server.process.poll() is None and time.monotonic() < deadline:
        for path in (
            "/readyz",
            "/healthz",
            "/",
            "/metrics",
            "/api/v1/model",
            "/v2",
            "/v2/health/ready",
        ):
            try:
                seen += server.get(path)[1]
            except OSError:
                time.sleep(0.2)
    server.kill()
    if secret in server.log.read_text(errors="replace") or secret.encode() in seen:
        sys.exit(f"the secret is in an answer or in the log:\n{server.log.read_text()[-3000:]}")
    return (
        "a password in eight settings, and a registry that cannot be reached",
        "never seen",
        "-",
        "-",
        "-",
    )


def wait_for_results(server: Server) -> None:
    """Search until the address of the attacks may again: wrong keys keep it waiting."""
    deadline = time.monotonic() + 60
    while server.request("POST", "/api/v1/search", SEARCHED, JSON)[0] != 200:
        assert time.monotonic() < deadline, "no answer a minute after the attacks"
        time.sleep(1)


def main() -> None:
    """Run every attack, and write the table."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        run = folder / "demo"
        subprocess.run(
            [sys.executable, "-m", "bifocal", "demo", "--folder", str(run)],
            check=True,
            capture_output=True,
        )
        deletions = folder / "deleted.jsonl"
        server = Server(
            free_port(),
            folder / "log.jsonl",
            "--run",
            run,
            "--decoders",
            1,
            "--deletions",
            deletions,
            "--poll",
            0.5,
        )
        server.start()
        try:
            server.wait_until_ready()
            prepare()
            rows = [attack(server, name) for name in attacks()]
            wait_for_results(server)
        finally:
            server.kill()
        if "Traceback" in server.log.read_text():
            sys.exit(f"a traceback in the log:\n{server.log.read_text()[-5000:]}")
        rows.append(provoke_failures(folder))
        rows += attack_files(folder, run)
    lines = [" | ".join(row) for row in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    table = "\n".join(f"| {line} |" for line in lines)
    click.echo(table)
    if FAILED:
        sys.exit(f"error: {len(FAILED)} of {len(rows)} attacks failed")
    text = PAGE.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(
        f"{before}{BEGIN}\n\n{table}\n\nMeasured on {date.today().isoformat()}.\n\n{END}{after}"
    )


if __name__ == "__main__":
    main()
