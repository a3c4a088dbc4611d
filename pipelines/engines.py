"""What runs one step of a compiled pipeline: a process of this machine."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parent.parent


@dataclass
class HostEngine:
    """Steps as processes of this machine and this checkout.

    Args:
        environment: variables in the place of the compiled ones, which name the cluster's servers.
    """

    environment: Mapping[str, str]

    def run(self, container: Mapping[str, Any], command: list[str], seconds: float, log: Path) -> int:
        """Run ``command`` with this Python; it is killed, with all that it started, after ``seconds``."""
        process = subprocess.Popen(
            [sys.executable, *command[1:]],
            cwd=ROOT,
            env={**os.environ, **_variables(container), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), os.killpg, (process.pid, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None  # it is a pipe
            _tee(process.stdout, log)
            return process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {given["name"]: given["value"] for given in container.get("env", [])}


def _tee(lines: Iterator[bytes] | Any, log: Path) -> None:
    with log.open("ab") as file:
        for line in lines:
            file.write(line)
            file.flush()
            click.echo(line, nl=False)
