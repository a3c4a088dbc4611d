"""Preflight: whether a cluster could run the compiled pipeline, checked before a run or a schedule
is created."""

import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from components.catalog import pipeline_components
from pipelines.kubeflow.client import kfp_client
from pipelines.kubeflow.namespace import (
    NotProbed,
    PreflightSubject,
    check_permissions,
    check_services,
)
from runtime.checkout import git_answer, git_environment
from runtime.redaction import redact
from runtime.s3.storage import Storage
from runtime.s3.uri import StorageError, is_remote

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
UNREACHABLE = re.compile(
    r"^(localhost|127(\.\d+){3}|\[::1\]|0\.0\.0\.0|.*\.(invalid|localhost|example|test))$", re.I
)
GIT_SECONDS = 60
GIT_LOGIN = (
    "git logs in by its own configuration here; in the cluster by the secret of "
    "BIFOCAL_GIT_USERNAME and BIFOCAL_GIT_PASSWORD"
)
S3_LOGIN = "the keys are this machine's AWS_..., the cluster has its own"
ALL = "all"


def check_server(_: PreflightSubject) -> Iterator[str]:
    """Yield why the server at ``KFP_ENDPOINT`` takes no run."""
    try:
        with kfp_client():
            pass
    except (OSError, ValueError) as error:
        yield str(error)


def check_images(subject: PreflightSubject) -> Iterator[str]:
    """Yield unreachable images, and images without a digest: Kubeflow's cache would miss their
    changes."""
    for group in sorted({stage.image for stage in pipeline_components()}):
        image = subject.resources.images[group]
        if is_unreachable(image.partition("/")[0] if "/" in image else ""):
            yield f"{group} is {image}, which only this machine has: push it to a registry"
        elif not DIGEST.search(image):
            yield (
                f"{group} is {image}, without a digest: pass images.json of "
                "containers/build.py by --images"
            )


def is_unreachable(host: str) -> bool:
    """Whether no other machine can reach ``host``, or the name is reserved (RFC 6761)."""
    return bool(UNREACHABLE.match(re.sub(r":\d+$", "", host)))


def check_repository(subject: PreflightSubject) -> Iterator[str]:
    """Yield why ``fetch`` or ``push`` could not use the repository; nothing if neither step is in
    the pipeline."""
    if not subject.resources.push and all(is_remote(path) for path in subject.user_paths()):
        return
    repository = subject.resources.repository
    host = (
        urlsplit(repository).hostname
        if "://" in repository
        else repository.rpartition("@")[2].partition(":")[0]
    )
    if repository.startswith(("/", ".", "file:")):
        yield f"{repository} is a folder of this machine: set the URL of a git server"
    elif is_unreachable(host or ""):
        yield (
            f"{repository}: no other machine can reach the host {host}: set the URL of a git server"
        )
    elif problem := _fetch(repository, subject.revision):
        yield problem


def _fetch(repository: str, revision: str) -> str | None:
    """Fetch one commit, without its files; return the problem."""
    with TemporaryDirectory() as folder:
        clone = Path(folder)
        _git(clone, "init", "--quiet", "--bare")
        if error := _git(clone, "ls-remote", "--quiet", "--exit-code", "--", repository, "HEAD"):
            return f"git cannot read {repository}: {error}; {GIT_LOGIN}"
        if error := _git(
            clone, "fetch", "--quiet", "--depth=1", "--filter=tree:0", "--", repository, revision
        ):
            return (
                f"{repository} does not have {revision} ({error}): push the commit, or name "
                "another by --revision"
            )
    return None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=git_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=GIT_SECONDS,
        )
    except FileNotFoundError:
        return "git is not installed"
    except subprocess.TimeoutExpired:
        return f"no answer within {GIT_SECONDS} s"
    return (done.stderr.strip().splitlines() or ["git failed"])[-1] if done.returncode else None


def check_buckets(subject: PreflightSubject) -> Iterator[str]:
    """Yield the S3 addresses that this machine's keys cannot write or cannot read."""
    storage = Storage(attempts=2, timeout=10)
    writable = [subject.resources.checkpoints] if subject.resources.checkpoints else []
    if subject.distributed:
        writable.append(subject.resources.trainer.folder)
    if subject.resources.push:
        remote = dvc_remote(subject.revision)
        if problem := git_answer("cat-file", "-e", f"{subject.revision}^{{commit}}")[1]:
            yield NotProbed(f"the DVC remote of {subject.revision} is unknown here: {problem}")
        elif remote is None:
            yield (
                "push is true, but DVC has no default remote: 'dvc remote add --default NAME "
                "URL', or set push: false"
            )
        elif "://" not in remote.removeprefix("file://"):
            yield f"the DVC remote {remote} is a folder of this machine: name an address on S3"
        elif is_remote(remote):
            writable.append(f"{remote.rstrip('/')}/files")  # where DVC writes
    readable = set(filter(is_remote, subject.user_paths()))
    if "monitor" in subject.flows:
        monitoring = subject.resources.monitoring
        writable.append(monitoring.folder)
        readable |= set(monitoring.queries)
    if "retrain" in subject.flows and subject.resources.canary is not None:
        writable.append(subject.resources.canary.folder)
    checks = [(storage.check_writable, address) for address in writable]
    checks += [(storage.check_readable, address) for address in sorted(readable)]
    for check, address in checks:
        try:
            check(address)
        except StorageError as error:
            yield f"{error} ({S3_LOGIN})"


def dvc_remote(revision: str) -> str | None:
    """Return the address of DVC's default remote in a commit, which the steps clone; None if there
    is none."""
    parser = ConfigParser(interpolation=None)  # DVC has none, and an address may have a %
    parser.read_string(git_answer("show", f"{revision}:./.dvc/config")[0])
    name = parser.get("core", "remote", fallback=None)
    return parser.get(f"'remote \"{name}\"'", "url", fallback=None)


CHECKS: Mapping[str, Callable[[PreflightSubject], Iterable[str]]] = {
    "server": check_server,
    "images": check_images,
    "repository": check_repository,
    "buckets": check_buckets,
    "permissions": check_permissions,
    "services": check_services,
}


def check_all(subject: PreflightSubject, skipped: Collection[str] = ()) -> list[str]:
    """Run the checks that are not ``skipped`` (names, or ``ALL``); return what could not be probed.

    Raises:
        ValueError: all problems.
    """
    checks: dict[str, Any] = (
        {} if ALL in skipped else {name: CHECKS[name] for name in CHECKS if name not in skipped}
    )
    found = [(name, problem) for name, check in checks.items() for problem in check(subject)]
    problems = [(name, text) for name, text in found if not isinstance(text, NotProbed)]
    if problems:
        lines = "\n  ".join(f"{name}: {redact(text)}" for name, text in problems)
        raise ValueError(
            f"the cluster cannot run this pipeline:\n  {lines}\n"
            "set the values in a file for --resources; --skip-check NAME omits a check that cannot "
            "be made from here"
        )
    return [f"{name}: {redact(text)}" for name, text in found if isinstance(text, NotProbed)]
