"""The process of a program or a stage: its errors and its exit, memory, time, and the processes of
``torchrun``."""

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

import click
from safetensors import SafetensorError

from bifocal.processors import CGROUP, PROCESSORS
from bifocal.progress import printable
from runtime.redaction import print_traceback, redact

KEEP_FREED_MEMORY = {-4: 0, -1: -1}  # M_MMAP_MAX and M_TRIM_THRESHOLD of glibc's mallopt
TERMINATION_LOG, TERMINATION_BYTES = "BIFOCAL_TERMINATION_LOG", 4096
"""Variable with the file whose text Kubernetes shows for an ended pod, and Argo for a failed task;
bytes shown."""
COUNTERS = (
    ("memory.peak", "memory.max"),
    ("memory.current", "memory.max"),  # Linux before 5.19
    ("memory/memory.max_usage_in_bytes", "memory/memory.limit_in_bytes"),  # cgroup v1
)
MEMORY_SECONDS, KEEPER, RETURNED = 0.25, "freed memory", 2 * 2**30
"""Interval of looks at the memory; the thread that returns it, and the bytes of a process that it
leaves alone."""


def run(main: click.Command, name: str) -> None:
    """Run ``main`` as the program ``name``; print errors that a user can fix without traceback, and
    no credentials."""
    # While torch and MLflow are imported, collections find nothing and take a sixth of the time.
    gc.set_threshold(10_000, 50, 10)
    # torch, numpy and faiss count the processors of the machine, of which a container has a part.
    if (os.cpu_count() or 1) > PROCESSORS:
        os.environ.setdefault("OMP_NUM_THREADS", str(PROCESSORS))
    log = Path(os.environ[TERMINATION_LOG]) if TERMINATION_LOG in os.environ else None
    ended = threading.Event()
    reporter = threading.Thread(target=report_memory, args=[log, ended], daemon=True)
    if log is not None and os.environ.get("LOCAL_RANK", "0") == "0":
        reporter.start()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a pipe of Windows has no Chinese letters
            stream.reconfigure(errors="backslashreplace")
    try:
        main(prog_name=name)
    except Exception as error:
        if known := isinstance(error, ValueError | OSError | ArithmeticError | SafetensorError):
            text = str(error)
            if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":
                text = f"{error.object}: this locale writes {error.encoding}; set PYTHONUTF8=1"
            message = "\n".join(map(printable, text.split("\n")))
            click.secho(redact(f"error: {message}"), fg="red", err=True)
        else:
            print_traceback()
        if log is not None:
            ended.set()
            if reporter.is_alive():
                reporter.join()
            with suppress(OSError):
                log.write_bytes(
                    redact(str(error) if known else repr(error)).encode()[:TERMINATION_BYTES]
                )
        sys.exit(1)
    finally:
        # Python visits every object when it exits, for up to a second. Triton reports frozen
        # objects as leaks.
        if "triton" not in sys.modules:
            gc.freeze()


def report_memory(log: Path, ended: threading.Event) -> None:
    """Write peak and limit of the memory to a file until it has an error: a step that the kernel
    kills writes none."""
    highest, written = 0, ""
    with suppress(OSError):
        while not written or log.read_text() == written:
            used, limit = memory()
            highest = max(highest, used)
            text = f"memory: peak {highest / 2**30:.2f} GiB, limit {limit / 2**30:.2f} GiB"
            if text != written:
                log.write_text(text)
                written = text
            if ended.wait(MEMORY_SECONDS):
                return


def memory() -> tuple[int, int]:
    """Return peak and limit of the memory in bytes: of the container, else of this process and the
    machine."""
    import resource  # Windows has none

    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for counters in COUNTERS:
        with suppress(OSError, ValueError):  # no such file, or "max" for no limit
            peak, limit = (int((CGROUP / name).read_text()) for name in counters)
            if limit < machine:
                return peak, limit
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, machine


def keep_freed_memory() -> None:
    """Keep freed memory in this process: page faults of new tensors take up to half of a training's
    processor time."""
    with suppress(AttributeError, TypeError):  # macOS has no mallopt, Windows no CDLL(None)
        glibc = ctypes.CDLL(None)
        for option, value in KEEP_FREED_MEMORY.items():
            glibc.mallopt(option, value)
        if all(thread.name != KEEPER for thread in threading.enumerate()):
            threading.Thread(
                target=_return_split_memory, args=[glibc.malloc_trim], name=KEEPER, daemon=True
            ).start()


def _return_split_memory(trim: Callable[[int], int]) -> None:
    """Return free memory whenever the process has doubled: tensors of many sizes leave pieces too
    small for others."""
    limit = RETURNED
    with suppress(OSError):  # a sandbox without /proc
        while True:
            time.sleep(MEMORY_SECONDS)
            if _own_memory() > limit:
                trim(0)
                limit = max(RETURNED, 2 * _own_memory())


def _own_memory() -> int:
    resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def core_seconds() -> float:
    """Return the seconds that this process and its ended children have used of all cores."""
    return sum(os.times()[:4])


def under_torchrun() -> bool:
    """Whether ``torchrun`` started this process."""
    return "RANK" in os.environ


def is_main_process() -> bool:
    """Whether this process is the only one or the first of several."""
    return os.environ.get("RANK", "0") == "0"


def processes_of_one_machine(count: int) -> list[str]:
    """Return the arguments of Python that start a module in ``count`` processes, before
    ``-m module``."""
    return (
        []
        if count == 1
        else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    )
