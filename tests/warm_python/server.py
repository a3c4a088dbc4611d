"""A process with all third-party packages, which forks one process per command: importing them
takes seconds.

It imports no module of this project: each command imports its own, as a new interpreter does.
"""

import array
import atexit
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

PACKAGES = (
    "boto3",
    "dvc.cli.parser",
    "dvc.dependency",
    "dvc.repo.artifacts",
    "dvc.repo.datasets",
    "dvc.repo.graph",
    "dvc.repo.index",
    "dvc.repo.metrics.show",
    "dvc.repo.params",
    "dvc.repo.plots",
    "dvc.repo.reproduce",
    "dvc.stage.cache",
    "dvc.utils.strictyaml",
    "dvc_data.hashfile.db.local",
    "faiss",
    "gensim.models",
    "jinja2",
    "matplotlib.pyplot",
    "mlflow.pyfunc",
    "mlflow.store.tracking.sqlalchemy_store",
    "networkx",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic",
    "rich.progress",
    "scipy.stats",
    "sklearn.feature_extraction.text",
    "timm",
    "torch._dynamo",
    "torchvision.transforms.v2",
)
PROJECT = {"bifocal", "components", "pipelines", "runtime"}
HEADER = 8
"""Bytes of the length of a request."""


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork a process for each command; return the request in that process. Another one waits for
    its exit code."""
    while True:
        connection, _ = listener.accept()
        waiting = os.fork()
        if waiting:
            connection.close()
            continue
        listener.close()
        request = receive(connection)
        command = os.fork()
        if command == 0:
            connection.close()
            return request
        code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
        connection.sendall(bytes([code % 256]))
        os._exit(0)


def receive(connection: socket.socket) -> dict[str, Any]:
    """Return the request, after taking over the standard streams of the client."""
    streams = array.array("i")
    header, ancillary, _, _ = connection.recvmsg(HEADER, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(ancillary[0][2])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with connection.makefile("rb") as file:
        request: dict[str, Any] = json.loads(file.read(int.from_bytes(header, "big")))
    return request


def run(folder: str, environment: dict[str, str], arguments: list[str]) -> None:
    """Run ``python -m MODULE ...`` in a folder."""
    if arguments[0] != "-m":
        raise SystemExit(f"expected python -m MODULE, got python {' '.join(arguments)}")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv = [sys.executable, *arguments]
    sys.argv = arguments[1:]
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder, *filter(None, paths)]
    if any(Path(path, "sitecustomize.py").is_file() for path in paths):
        importlib.import_module("sitecustomize")
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


def exit_code(request: dict[str, Any]) -> int:
    """Run a command; return its exit code."""
    try:
        run(**request)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(address: str) -> None:
    """Import the packages, listen at the address of a Unix socket, and run the commands."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    for name in PACKAGES:
        importlib.import_module(name)
    assert not PROJECT.intersection(name.partition(".")[0] for name in sys.modules)
    gc.freeze()  # or else a collection copies the pages of all packages in each fork
    request = serve(listener)
    code = exit_code(request)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(
        code
    )  # without destructors of libraries, which wait for threads that a fork does not have


if __name__ == "__main__":
    main(sys.argv[1])
