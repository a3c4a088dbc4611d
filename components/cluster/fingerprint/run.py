"""Step fingerprint: run."""

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from components.cluster.fingerprint.spec import COMPONENT, MLFLOW_PAGE, FingerprintParams
from runtime.git import git_environment
from runtime.mlflow import create_pipeline_run, git_commit
from runtime.s3.storage import Storage
from runtime.s3.uri import is_remote


def run(params: FingerprintParams, *, repository: str, revision: str) -> dict[str, Any]:
    """Return the number of sources, the page in MLflow and, for each stage, the versions of its sources as JSON.

    The version of a path of the repository is the last commit that changed it, so the step ``fetch`` can take it from
    the cache after any other commit. The version of an ``s3://`` address is a digest of its objects' names and ETags.
    As the first step, it also creates the MLflow run that the runs of the stages are nested in; its page is an output,
    which Kubeflow shows.

    Args:
        repository: URL or folder of a git repository with DVC.
        revision: a commit, or a branch, of which the latest commit is used.

    Raises:
        ValueError: git cannot read the repository or the revision.
        OSError: no file is at an ``s3://`` address, or S3 or MLflow does not answer.
    """
    kfp_run = os.environ.get("KFP_RUN_ID")
    page = create_pipeline_run(kfp_run, tags={"git_commit": git_commit()}).url if kfp_run else ""
    sources = {path for paths in params.sources.values() for path in paths}
    remote = sorted(filter(is_remote, sources))
    versions = last_commits(repository, revision, sources.difference(remote))
    versions |= {address: Storage().digest(address) for address in remote}
    texts = {
        stage: json.dumps({path: versions[path] for path in sorted(paths)}) if paths else ""
        for stage, paths in params.sources.items()
    }
    return {"sources": len(sources), **dict.fromkeys(COMPONENT.parameter_outputs, ""), **texts, MLFLOW_PAGE: page}


def last_commits(repository: str, revision: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the last commit up to ``revision`` that changed each path, or the files by which DVC tracks it.

    Without such a commit, for example if a stage of a ``dvc.yaml`` writes the path, it is ``revision`` itself.

    Raises:
        ValueError: git cannot clone the repository, or does not know the revision.
    """
    paths = sorted(paths)
    if not paths:
        return {}
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        # Commits and folders only: the files may be large.
        _git("clone", "--quiet", "--no-checkout", "--filter=blob:none", "--", repository, str(clone))
        head = _resolve(clone, revision, repository)
        log = ("-C", str(clone), "--literal-pathspecs", "log", "--max-count=1", "--format=%H", head, "--")
        return {path: _git(*log, *_tracking_files(path)) or head for path in paths}


def _tracking_files(path: str) -> list[str]:
    """Return ``path`` with the files that describe it: its own .dvc file or that of a folder around it."""
    folders = [PurePosixPath(path), *PurePosixPath(path).parents][:-1]
    # An older .dvc/config may name a remote that is gone.
    return [path, *(f"{folder}.dvc" for folder in folders), ".dvc/config"]


def _resolve(clone: Path, revision: str, repository: str) -> str:
    for name in (f"origin/{revision}", revision):
        try:
            return _git("-C", str(clone), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except ValueError:
            continue
    raise ValueError(f"fingerprint: {repository} has no commit or branch {revision!r}: is it pushed?")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], env=git_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"fingerprint: git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()
