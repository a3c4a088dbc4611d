"""Checkpoints of a stage on S3, under the identity of the stage, if ``BIFOCAL_CHECKPOINTS`` names a folder."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bifocal.progress import log_line
from bifocal.training.checkpoints.hook import checkpoint_hook
from runtime import artifacts

if TYPE_CHECKING:
    from runtime.s3.checkpoints import RemoteCheckpoints

FOLDER = "BIFOCAL_CHECKPOINTS"
MINUTES = "BIFOCAL_CHECKPOINT_MINUTES"
DEFAULT_MINUTES = "5"


@contextmanager
def remote_checkpoints(fingerprint: Mapping[str, Any], partials: Mapping[str, Path]) -> Iterator[None]:
    """Restore the checkpoints of a stage, and copy each new one to S3; do nothing without ``BIFOCAL_CHECKPOINTS``.

    ``BIFOCAL_CHECKPOINT_MINUTES`` is the time between two copies. There is one more copy after SIGTERM or an error.
    On Kubeflow, that copy needs a TrainJob: a step of a pipeline has at most a second after SIGTERM. Argo's emissary
    sends the signal to the whole process group (argo-workflows ``workflow/executor/osspecific/signal_darwin.go:19``,
    which is Linux' file too); KFP's launcher has no handler (pipelines ``backend/src/v2/component/launcher_v2.go:707``)
    and ends, and the emissary, which is process 1, sees that within a second (``Wait``, line 31).

    Args:
        fingerprint: of the stage, see ``artifacts.open_partial``.
        partials: partial directory of each output.

    Raises:
        StorageError: the checkpoints cannot be read.
    """
    store = _store(fingerprint, {name: partial / artifacts.CHECKPOINTS for name, partial in partials.items()})
    if store is None or not partials:  # a step without outputs trains nothing
        yield
        return
    store.restore()
    failed = True
    try:
        with checkpoint_hook(store):
            yield
        failed = False
    finally:
        store.close(failed=failed)


def delete_checkpoints(inputs: Iterable[Path]) -> None:
    """Delete the checkpoints on S3 behind complete artifacts, which a later stage reads.

    The stage that writes an artifact does not delete them: on Kubeflow, the artifact is uploaded after the stage ends
    (pipelines ``backend/src/v2/component/launcher_v2.go``, ``executeV2``), and its loss would cost the whole training.
    """
    from runtime.s3.errors import StorageError  # imports boto3, which takes seconds

    for path in inputs:
        store = _store(artifacts.fingerprint_of(artifacts.read_manifest(path)), {})
        try:
            if store is not None:
                store.delete()
        except StorageError as error:
            log_line(f"warning: old checkpoints remain: {error}")


def _store(fingerprint: Mapping[str, Any], folders: Mapping[str, Path]) -> "RemoteCheckpoints | None":
    root = os.environ.get(FOLDER)
    if not root:
        return None
    from runtime.s3.checkpoints import RemoteCheckpoints  # imports boto3, which takes seconds

    text = os.environ.get(MINUTES, DEFAULT_MINUTES)
    try:
        seconds = 60 * float(text)
    except ValueError as error:
        raise ValueError(f"{MINUTES} is {text!r}: expected minutes, such as {DEFAULT_MINUTES}") from error
    identity = hashlib.sha256(json.dumps(fingerprint, sort_keys=True, default=str).encode()).hexdigest()
    return RemoteCheckpoints(f"{root.rstrip('/')}/{identity[:32]}", folders, seconds)
