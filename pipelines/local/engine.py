"""Engines run one attempt of a step; this one as a process of this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import click

from pipelines.dvc import package_versions

ROOT = Path(__file__).parents[2]
# -I -S: the supervisor needs only the standard library, and starts within milliseconds.
SUPERVISOR = [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervise.py"))]


@dataclass(frozen=True)
class Pod:
    """One attempt of a step, which reads ``inputs`` and writes below ``folder``; ``timeout`` is in
    seconds."""

    folder: Path
    inputs: Sequence[Path]
    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    timeout: float
    log: Path


class Exit(NamedTuple):
    """Exit code of a step, and whether it was killed after its timeout."""

    code: int
    late: bool = False


class Engine(Protocol):
    """Runs one step."""

    def image(self, image: str) -> str:
        """Return the image as it enters the cache key: with its content, as a digest has it on a
        cluster."""

    def run(self, pod: Pod) -> Exit:
        """Run the command until it ends or its time is up; append its output to the log."""

    def stop(self) -> None:
        """Kill the running steps."""


def tee(lines: Iterable[bytes], log: Path) -> None:
    """Append the output of a step to its log, and print it."""
    with log.open("ab") as file:
        for line in lines:
            file.write(line)
            file.flush()
            click.echo(line, nl=False)


@contextmanager
def deadline(seconds: float, kill: Callable[[], object]) -> Iterator[threading.Event]:
    """Call ``kill`` after a time, unless the block ends before; the event says whether it was
    called."""
    late = threading.Event()

    def end() -> None:
        late.set()
        kill()

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


@dataclass
class HostEngine:
    """Runs steps as processes of this machine; ``environment`` replaces compiled variables, which
    name a cluster."""

    environment: Mapping[str, str]
    _process_ids: set[int] = field(default_factory=set, init=False)

    def image(self, image: str) -> str:
        """Return the name with the versions of the installed packages; a step's code is among its
        arguments."""
        return f"{image} {json.dumps(package_versions(), sort_keys=True)}"

    def run(self, pod: Pod) -> Exit:
        """Run the command with this Python; kill it and its children after the timeout, or when
        this process is killed.

        SIGKILL follows at once, as in a pod of Kubeflow (argo-workflows,
        cmd/argoexec/commands/emissary.go:235, 267).
        """
        process = subprocess.Popen(
            [*SUPERVISOR, sys.executable, *pod.command[1:]],
            cwd=ROOT,
            env={**os.environ, **pod.environment, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._process_ids.add(process.pid)
        assert process.stdin is not None  # it is a pipe
        assert process.stdout is not None
        try:
            with deadline(pod.timeout, lambda: os.killpg(process.pid, signal.SIGKILL)) as late:
                tee(process.stdout, pod.log)
                return Exit(process.wait(), late.is_set())
        finally:
            self._process_ids.discard(process.pid)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdin.close()

    def stop(self) -> None:
        """Kill the running steps and their children: Ctrl-C does not reach their process groups."""
        for process_id in list(self._process_ids):
            with suppress(ProcessLookupError):  # the process has ended meanwhile
                os.killpg(process_id, signal.SIGKILL)
