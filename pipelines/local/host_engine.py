"""Engine that runs a step as a process of this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.dvc import package_versions
from pipelines.local.engine import Exit, Pod, tee

ROOT = Path(__file__).parents[2]
# -I -S: the supervisor needs only the standard library, and starts within milliseconds.
SUPERVISOR = [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervise.py"))]


@dataclass
class HostEngine:
    """Runs steps as processes of this machine; ``environment`` replaces compiled variables, which name a cluster."""

    environment: Mapping[str, str]
    _process_ids: set[int] = field(default_factory=set, init=False)

    def image(self, image: str) -> str:
        """Return the name with the versions of the installed packages; a step's code is among its arguments."""
        return f"{image} {json.dumps(package_versions(), sort_keys=True)}"

    def run(self, pod: Pod) -> Exit:
        """Run the command with this Python; kill it and its children after the timeout, or when this process is killed.

        SIGKILL follows at once, as in a pod of Kubeflow (argo-workflows, cmd/argoexec/commands/emissary.go:235, 267).
        """
        late = threading.Event()
        process = subprocess.Popen(
            [*SUPERVISOR, sys.executable, *pod.command[1:]],
            cwd=ROOT,
            env={**os.environ, **pod.environment, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

        def kill() -> None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(min(pod.timeout, threading.TIMEOUT_MAX), kill)
        timer.daemon = True
        timer.start()
        self._process_ids.add(process.pid)
        assert process.stdin is not None  # it is a pipe
        assert process.stdout is not None
        try:
            tee(process.stdout, pod.log)
            return Exit(process.wait(), late.is_set())
        finally:
            timer.cancel()
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
