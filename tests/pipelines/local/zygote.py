"""A warm process that forks one process per pod: importing torch and MLflow takes seconds, a fork
does not.

Reads one JSON request per line, and writes the process id and then the exit code of each pod. As
root, a pod has mounts and a root directory of its own; everything but its folder and /tmp is
read-only there.
"""

import ctypes
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, CLONE_NEWNS = (
    1,
    32,
    4096,
    16384,
    1 << 18,
    0x20000,
)
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc")


def serve() -> None:
    from components.__main__ import main
    from components.catalog import all_components
    from runtime.process import run

    for component in all_components().values():
        import_module(component.module)
    # torch imports its compiler, which takes seconds, when the first optimizer is built.
    import_module("torch._dynamo")
    import_module("runtime.kubeflow.executor")
    import_module("runtime.stage")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                enter_pod(request)
                sys.argv = ["components", *request["command"][3:]]
                run(main, "python -m components")
            except SystemExit as end:
                # Without the handlers of atexit, which wait for threads that a fork does not have.
                sys.stdout.flush()
                os._exit(int(end.code or 0))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        answer({"pid": child})
        _, status = os.waitpid(child, 0)
        answer({"code": os.waitstatus_to_exitcode(status)})


def answer(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def enter_pod(request: dict[str, Any]) -> None:
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if request["user"] is not None:
        change_root(Path(request["folder"]), [Path(path) for path in request["inputs"]])
        os.setgroups([])
        os.setgid(request["user"])
        os.setuid(request["user"])
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(request["environment"])


def change_root(folder: Path, inputs: Iterable[Path]) -> None:
    """Enter a new root directory: the system, the project and inputs, and for writing ``folder``
    and /tmp."""
    check(libc().unshare(CLONE_NEWNS))
    mount("none", Path("/"), MS_REC | MS_PRIVATE)
    root = Path(tempfile.mkdtemp())
    mount("tmpfs", root, 0, kind="tmpfs", options="mode=755")
    # /tmp first: the checkout and the folders may be below it.
    (root / "tmp").mkdir()
    mount("tmpfs", root / "tmp", 0, kind="tmpfs", options="mode=1777")
    for path in (*read_only_paths(), *inputs, folder):
        target = root / path.relative_to("/")
        if path.is_symlink():
            target.symlink_to(path.readlink())
            continue
        target.mkdir(parents=True, exist_ok=True)
        mount(str(path), target, MS_BIND | MS_REC)
        if path.name not in ("dev", "proc") and path != folder:
            mount("none", target, MS_REMOUNT | MS_BIND | MS_RDONLY)
    mount("none", root, MS_REMOUNT | MS_RDONLY)
    os.chroot(root)


def read_only_paths() -> Iterable[Path]:
    """Paths that an image has: the system, Python with its packages, the checkout."""
    packages = Path(sys.prefix).resolve()
    python = Path(sys.base_prefix).resolve()
    return [*map(Path, SYSTEM), python, packages, ROOT]


def mount(source: str, target: Path, flags: int, kind: str = "", options: str = "") -> None:
    check(
        libc().mount(
            source.encode(),
            str(target).encode(),
            kind.encode() or None,
            flags,
            options.encode() or None,
        )
    )


def check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    serve()
