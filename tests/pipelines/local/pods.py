"""Engine whose pods have a file system of their own and run as an arbitrary user; see ``zygote.py``."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.local.engine import Exit, Pod, give_folders

ZYGOTE = Path(__file__).with_name("zygote.py")
USER = 12345
KEPT = ("PATH", "LANG")
IMAGE = {"HOME": "/tmp", "LOGNAME": "bifocal", "PYTHONDONTWRITEBYTECODE": "1"}
"""Variables of containers/Containerfile."""


def isolation_skip_reason() -> str:
    """Why pods cannot have a file system of their own here; "" if they can."""
    if os.getuid():
        return "mounts and other users need root"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"no mount namespaces: {done.stderr.strip()}" if done.returncode else ""


@dataclass
class PodEngine:
    """Runs pods one after another.

    Args:
        environment: variables of every pod.
        isolated: whether pods have their own root directory and user.
        kill: returns "deleted" or "oom" to kill the pod of a stage while it runs; called ten times a second.
    """

    environment: Mapping[str, str]
    isolated: bool
    kill: Callable[[str, Pod], str] = lambda stage, pod: ""
    files: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._zygote = subprocess.Popen(
            [sys.executable, str(ZYGOTE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        self._zygote.kill()
        self._zygote.communicate()

    def root(self, pod: Path) -> Path:
        return Path("/") if self.isolated else pod

    def image(self, image: str) -> str:
        return image

    def own(self, pod: Path) -> None:
        if self.isolated:
            give_folders(pod, USER)

    def run(self, pod: Pod) -> Exit:
        stage = pod.command[3]
        self.files[stage] = sorted(
            str(path.relative_to(pod.folder)) for path in pod.folder.rglob("*") if path.is_file()
        )
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        request = {
            "pod": str(pod.folder),
            "log": str(pod.log),
            "command": pod.command,
            "environment": {**kept, **IMAGE, **pod.environment, **self.environment},
            "user": USER if self.isolated else None,
        }
        child, reason, ended = self._ask(request)["pid"], [""], threading.Event()

        def watch() -> None:
            waited = 0.0
            while not ended.wait(0.1):
                waited += 0.1
                reason[0] = "deadline" if waited > pod.timeout else self.kill(stage, pod)
                if reason[0]:
                    with suppress(ProcessLookupError):
                        os.killpg(child, signal.SIGKILL)
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        code = int(self._answer()["code"])
        ended.set()
        watcher.join()
        if reason[0] == "deleted":
            return Exit(code, "deleted")
        return Exit(code, "deadline" if reason[0] == "deadline" else "completed")

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
