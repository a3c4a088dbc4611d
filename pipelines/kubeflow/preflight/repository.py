"""Check of the git repository: the cluster can clone it, and it has the revision."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from pipelines.kubeflow.preflight.images import is_unreachable
from pipelines.kubeflow.preflight.subject import Subject
from runtime.checkout import git_environment
from runtime.s3.uri import is_remote

TIMEOUT_SECONDS = 60
LOGIN = (
    "git logs in by its own configuration here; in the cluster by the secret of BIFOCAL_GIT_USERNAME and "
    "BIFOCAL_GIT_PASSWORD"
)


def check_repository(subject: Subject) -> Iterator[str]:
    """Yield why ``fetch`` or ``push`` could not use the repository; nothing if neither step is in the pipeline."""
    if not subject.resources.push and all(is_remote(path) for path in subject.user_paths()):
        return
    repository = subject.resources.repository
    host = urlsplit(repository).hostname if "://" in repository else repository.rpartition("@")[2].partition(":")[0]
    if repository.startswith(("/", ".", "file:")):
        yield f"{repository} is a folder of this machine: set the URL of a git server"
    elif is_unreachable(host or ""):
        yield f"{repository}: no other machine can reach the host {host}: set the URL of a git server"
    elif problem := _fetch(repository, subject.revision):
        yield problem


def _fetch(repository: str, revision: str) -> str | None:
    """Fetch one commit, without its files; return the problem."""
    with TemporaryDirectory() as folder:
        clone = Path(folder)
        _git(clone, "init", "--quiet", "--bare")
        if error := _git(clone, "ls-remote", "--quiet", "--exit-code", "--", repository, "HEAD"):
            return f"git cannot read {repository}: {error}; {LOGIN}"
        if error := _git(clone, "fetch", "--quiet", "--depth=1", "--filter=tree:0", "--", repository, revision):
            return f"{repository} does not have {revision} ({error}): push the commit, or name another by --revision"
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
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_SECONDS} s"
    return (done.stderr.strip().splitlines() or ["git failed"])[-1] if done.returncode else None
