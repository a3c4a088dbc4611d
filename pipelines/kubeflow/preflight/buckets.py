"""Check of the S3 addresses of a pipeline: its folders can be written, and its input files exist."""

from collections.abc import Iterator
from configparser import ConfigParser

from pipelines.kubeflow.preflight.subject import Subject
from runtime.s3.errors import StorageError
from runtime.s3.storage import Storage
from runtime.s3.uri import is_remote

LOGIN = "the keys are this machine's AWS_..., the cluster has its own"


def check_buckets(subject: Subject) -> Iterator[str]:
    """Yield the S3 addresses that this machine's keys cannot write or cannot read."""
    storage = Storage(attempts=2, timeout=10)
    writable = [subject.resources.checkpoints] if subject.resources.checkpoints else []
    if subject.distributed:
        writable.append(subject.resources.trainer.folder)
    if subject.resources.push:
        remote = dvc_remote()
        if remote is None:
            yield "push is true, but DVC has no default remote: 'dvc remote add --default NAME URL', or set push: false"
        elif is_remote(remote):
            writable.append(f"{remote.rstrip('/')}/files")  # where DVC writes
    readable = set(filter(is_remote, subject.user_paths()))
    if "monitor" in subject.flows:
        monitoring = subject.resources.monitoring
        writable.append(monitoring.folder)
        readable |= {*monitoring.queries, *([monitoring.probes] if monitoring.probes else [])}
    if "retrain" in subject.flows and subject.resources.canary is not None:
        writable.append(subject.resources.canary.folder)
    checks = [(storage.check_writable, address) for address in writable]
    checks += [(storage.check_readable, address) for address in sorted(readable)]
    for check, address in checks:
        try:
            check(address)
        except StorageError as error:
            yield f"{error} ({LOGIN})"


def dvc_remote() -> str | None:
    """Return the address of DVC's default remote; None if there is none."""
    config = ConfigParser()
    config.read([".dvc/config", ".dvc/config.local"])
    name = config.get("core", "remote", fallback=None)
    return config.get(f"'remote \"{name}\"'", "url", fallback=None)
