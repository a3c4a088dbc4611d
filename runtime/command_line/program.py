"""A command line as a program. Imports no parameters, whose package takes a tenth of a second."""

import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

import click
from safetensors import SafetensorError

from runtime.redaction import print_traceback, redact

TERMINATION_LOG, TERMINATION_BYTES = Path("/dev/termination-log"), 4096


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
