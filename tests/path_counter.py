"""Count the files whose functions run on a central path:
``python -m tests.path_counter stage|query|train FOLDER``.

A file counts when one of its functions is entered, not when it is imported; a move is a change of
file. FOLDER holds the artifact ``dataset`` for a stage, a run for a query, and captioned images for
``bifocal train``.
"""

import inspect
import json
import os
import runpy
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from types import FrameType
from typing import Any
from urllib.request import Request, urlopen

from runtime.process import KEEPER

ROOT = Path(__file__).parents[1]
LAYERS = tuple(
    f"{ROOT / layer}{os.sep}" for layer in ("bifocal", "runtime", "components", "pipelines")
)


class EndOfPathError(BaseException):
    """The path has reached its end."""


class Watch:
    """Files whose functions run, in the order of their first call, and the moves between them.

    Args:
        is_end: whether a function, by its file and its name, ends the path.
    """

    def __init__(self, is_end: Callable[[str, str], bool] = lambda file, function: False) -> None:
        self.is_end, self.is_on = is_end, True
        self.files: list[str] = []
        self.moves, self.last, self.reached = 0, "", False

    def start(self) -> None:
        """Watch this thread and the threads that it starts."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if not (
            self.is_on and event == "call" and is_function and code.co_filename.startswith(LAYERS)
        ):
            return
        if threading.current_thread().name == KEEPER:  # looks at the memory at its own pace
            return
        caller = frame.f_back
        while caller is not None:  # calls while a module is imported are no steps of the path
            if caller.f_code.co_filename.startswith("<frozen importlib"):
                return
            caller = caller.f_back
        file = Path(code.co_filename).relative_to(ROOT).as_posix()
        if self.is_end(file, code.co_name):
            self.reached, self.is_on = True, False
            raise EndOfPathError
        if file not in self.files:
            self.files.append(file)
        self.moves, self.last = self.moves + (file != self.last), file


def command(module: str, arguments: list[str], watch: Watch) -> None:
    """Run ``python -m module`` in this process until the path ends."""
    sys.argv = [module, *arguments]
    watch.start()
    with suppress(EndOfPathError):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    report(watch)


def stage(folder: str) -> None:
    """From the command of a stage to its ``run.py``."""
    watch = Watch(
        lambda file, function: file == "components/vectorize_captions/run.py" and function == "run"
    )
    command("components", ["vectorize_captions", "--artifacts", folder], watch)


def train(folder: str) -> None:
    """From ``bifocal train`` to the first stage."""
    watch = Watch(lambda file, function: function in ("run_stages", "run_stage"))
    command("bifocal", ["train", folder, "--run", f"{mkdtemp()}/run"], watch)


def query(folder: str) -> None:
    """From the connection of a client to its answer, at the second query."""
    watch = Watch()
    watch.is_on = False
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    content = json.dumps({"text": "a red heart", "k": 5}).encode()
    request = Request(
        f"http://127.0.0.1:{port}/api/v1/search", content, {"Content-Type": "application/json"}
    )

    def ask_twice() -> None:
        while True:
            with suppress(OSError):
                urlopen(request, timeout=60).read()
                break
            time.sleep(0.5)
        time.sleep(1)  # the service logs the first query
        watch.is_on = True
        watch.reached = bool(urlopen(request, timeout=60).read())
        watch.is_on = False
        report(watch)

    threading.Thread(target=ask_twice, daemon=True).start()
    command("bifocal", ["serve", "--run", folder, "--port", str(port)], watch)


def report(watch: Watch) -> None:
    """Print the count, and end this process."""
    found = {"reached": watch.reached, "moves": watch.moves, "files": watch.files}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    {"stage": stage, "train": train, "query": query}[sys.argv[1]](sys.argv[2])
