"""ONNX Runtime keeps no id of the device, and sends nothing."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_runtime_starts_without_telemetry() -> None:
    """With telemetry, the runtime says that it cannot store its id in this home."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/dev/null/home"}
    command = [sys.executable, "-c", "import bifocal.onnx.sessions"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
