"""The process of a program or a stage: its errors and its exit, memory, time, and the processes of ``torchrun``."""

import ctypes
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

import click
from safetensors import SafetensorError

from runtime.redaction import print_traceback, redact

TERMINATION_LOG, TERMINATION_BYTES = Path("/dev/termination-log"), 4096
KEEP_FREED_MEMORY = {-4: 0, -1: -1}  # M_MMAP_MAX and M_TRIM_THRESHOLD of glibc's mallopt


def run(main: click.Command, name: str) -> None:
    """Run ``main`` as the program ``name``; print errors that a user can fix without traceback, and no credentials."""
    # While torch and MLflow are imported, collections find nothing and take a sixth of the time.
    gc.set_threshold(10_000, 50, 10)
    try:
        main(prog_name=name)
    except Exception as error:
        if known := isinstance(error, ValueError | OSError | ArithmeticError | SafetensorError):
            click.secho(redact(f"error: {error}"), fg="red", err=True)
        else:
            print_traceback()
        _report_to_kubernetes(str(error) if known else repr(error))
        sys.exit(1)
    finally:
        # Python visits every object when it exits, for up to a second. Triton reports frozen objects as leaks.
        if "triton" not in sys.modules:
            gc.freeze()


def _report_to_kubernetes(message: str) -> None:
    """Write the message that Kubernetes shows for a failed pod, and Argo for its task; do nothing outside a pod."""
    if "KFP_POD_NAME" in os.environ and TERMINATION_LOG.exists():
        with suppress(OSError):
            TERMINATION_LOG.write_bytes(redact(message).encode()[:TERMINATION_BYTES])


def keep_freed_memory() -> None:
    """Keep freed memory in this process: page faults of new tensors take up to half of a training's processor time."""
    with suppress(AttributeError, TypeError):  # macOS has no mallopt, Windows no CDLL(None)
        for option, value in KEEP_FREED_MEMORY.items():
            ctypes.CDLL(None).mallopt(option, value)


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
    """Return the arguments of Python that start a module in ``count`` processes, before ``-m module``."""
    return [] if count == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
