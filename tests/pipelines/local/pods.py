"""Engine whose pods have a file system of their own and run as an arbitrary user; see
``zygote.py``."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.local.engine import Exit, Pod

ZYGOTE = Path(__file__).with_name("zygote.py")
USER = 12345
KEPT = ("PATH", "LANG")
IMAGE = {"HOME": "/tmp", "LOGNAME": "bifocal", "PYTHONDONTWRITEBYTECODE": "1"}
"""Variables of containers/Containerfile."""


def isolation_skip_reason() -> str:
    """Why pods cannot have a file system of their own here; "" if they can."""
    if os.getuid():
        return "mounts and other users need root"
    done = subprocess.run(
        ["unshare", "--mount", "true"], capture_output=True, text=True, check=False
    )
    return f"no mount namespaces: {done.stderr.strip()}" if done.returncode else ""


@dataclass
class PodEngine:
    """Runs pods one after another.

    Args:
        environment: variables of every pod.
        isolated: whether pods have their own root directory and user.
        kill: whether to kill the pod of a stage now; called ten times a second while it runs.
    """

    environment: Mapping[str, str]
    isolated: bool
    kill: Callable[[str], bool] = lambda stage: False

    def __post_init__(self) -> None:
        self._zygote = subprocess.Popen(
            [sys.executable, str(ZYGOTE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        self._zygote.kill()
        self._zygote.communicate()

    def image(self, image: str) -> str:
        return image

    def run(self, pod: Pod) -> Exit:
        stage = pod.command[3]
        if self.isolated:
            os.chown(pod.folder, USER, USER)
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        request = {
            "folder": str(pod.folder),
            "inputs": [str(path) for path in pod.inputs],
            "log": str(pod.log),
            "command": pod.command,
            "environment": {**kept, **IMAGE, **pod.environment, **self.environment},
            "user": USER if self.isolated else None,
        }
        child, late, ended = self._ask(request)["pid"], threading.Event(), threading.Event()

        def watch() -> None:
            waited = 0.0
            while not ended.wait(0.1):
                waited += 0.1
                if waited > pod.timeout:
                    late.set()
                if late.is_set() or self.kill(stage):
                    with suppress(ProcessLookupError):
                        os.killpg(child, signal.SIGKILL)
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        code = int(self._answer()["code"])
        ended.set()
        watcher.join()
        return Exit(code, late.is_set())

    def stop(self) -> None:
        raise AssertionError("no test interrupts this engine")

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(json.dumps(request) + "\n")
        self._zygote.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._zygote.stdout is not None
        line = self._zygote.stdout.readline()
        assert line, f"the zygote ended with exit code {self._zygote.poll()}"
        answer: dict[str, Any] = json.loads(line)
        return answer
