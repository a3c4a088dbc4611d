"""Start of the warm process, see ``server.py``."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


@contextmanager
def warm_python(folder: Path) -> Iterator[Path]:
    """Yield a folder for ``PATH`` whose programs ``python -m MODULE`` and ``dvc`` run without
    imports of packages."""
    address = folder / "socket"
    # The packages read these variables when they are imported.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", str(HERE / "server.py"), str(address)]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    for name, module in (("python", ""), ("dvc", "-m dvc ")):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -IS "{HERE / "client.py"}" "{address}" '
            f'{module}"$@"\n'
        )
        program.chmod(0o755)
    try:
        while not address.exists():
            assert process.poll() is None, "the warm process ended"
            time.sleep(0.01)
        yield folder
    finally:
        process.kill()
        process.wait()
