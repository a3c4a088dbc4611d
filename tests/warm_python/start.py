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
    """Yield a folder for ``PATH`` whose program ``python`` runs ``python -m MODULE`` without imports of packages."""
    address, program = folder / "socket", folder / "python"
    # The packages read these variables when they are imported.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", str(HERE / "server.py"), str(address)]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{HERE / "client.py"}" "{address}" "$@"\n')
    program.chmod(0o755)
    try:
        while not address.exists():
            assert process.poll() is None, "the warm process ended"
            time.sleep(0.01)
        yield folder
    finally:
        process.kill()
        process.wait()
