"""Headless Chromium for tests, controlled over its debugging pipe, without a driver or a port."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0


def find_chromium() -> str | None:
    """Return the path of the browser: the variable ``CHROMIUM``, or the first of ``NAMES`` on the path."""
    configured = os.environ.get("CHROMIUM")
    return configured or next((path for name in NAMES if (path := shutil.which(name))), None)


def required_chromium() -> str:
    """Return the path of the browser; without it, the test fails if .ci/run installs it, and is skipped otherwise."""
    program = find_chromium()
    if program is None:
        message = "no Chromium on the path: apt-get install chromium, or set CHROMIUM"
        if os.environ.get("BIFOCAL_NEEDS_CHROMIUM"):
            pytest.fail(message)
        pytest.skip(message)
    return program


class Tab:
    """Open page; ``problems`` lists its errors and requests to other hosts."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer, self._rest, self._number = reader, writer, b"", 0
        self.problems: list[str] = []
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load ``url`` in a window of this size, in the light or dark color scheme, and wait until it is complete."""
        self.problems.clear()
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=scheme)
        self._call("Page.navigate", url=url)
        deadline = time.monotonic() + SECONDS
        while self.evaluate("document.readyState") != "complete":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} did not load within {SECONDS} s")
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write the whole page as PNG."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        picture = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(picture["data"]))

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                piece = os.read(self._reader, 1 << 16)
                if not piece:
                    raise RuntimeError("Chromium ended")
                self._rest += piece
            text, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._record(answer)

    def _record(self, event: Any) -> None:
        """Record console errors and requests to other hosts."""
        method, details = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(details["exceptionDetails"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.problems.append(details["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = details["request"]["url"]
            if not address.startswith(("data:", "file:", "about:", "blob:", "http://127.0.0.1", "http://localhost")):
                self.problems.append(f"request to {address}")


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Tab]:
    """Yield a tab of a running Chromium with an empty profile in ``profile``."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()

    def connect() -> None:
        # Chromium reads file descriptor 3 and writes 4: duplicate both first, because they may overlap.
        reading, writing = os.dup(theirs_in), os.dup(theirs_out)
        os.dup2(reading, 3)
        os.dup2(writing, 4)

    process = subprocess.Popen(
        [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
         f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
        close_fds=False, preexec_fn=connect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(ours_in, ours_out)
    finally:
        os.close(ours_out)
        os.close(ours_in)
        process.terminate()
        process.wait(10)
