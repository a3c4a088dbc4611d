"""Step fingerprint: run."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from components.cluster.steps import FINGERPRINT, MLFLOW_PAGE, FingerprintParams
from runtime.checkout import last_commits
from runtime.mlflow import create_pipeline_run, git_commit
from runtime.s3.storage import Storage
from runtime.s3.uri import is_remote


def run(params: FingerprintParams, *, repository: str, revision: str) -> dict[str, Any]:
    """Return the number of sources, the page in MLflow and, for each stage, the versions of its
    sources as JSON.

    The version of a path is the last commit that changed it, and of an ``s3://`` address a digest
    of its objects' names and ETags. Without a repository, it is a digest of the names, sizes and
    times of the files. The step also creates the MLflow run that the runs of the stages are nested
    in.
    """
    kfp_run = os.environ.get("KFP_RUN_ID")
    name, tags = os.environ.get("BIFOCAL_RUN_NAME", ""), {"git_commit": git_commit()}
    page = create_pipeline_run(kfp_run, name=name, tags=tags).url if kfp_run else ""
    sources = {path for paths in params.sources.values() for path in paths}
    remote = sorted(filter(is_remote, sources))
    local = sources.difference(remote)
    versions = (
        last_commits(repository, revision, local)
        if repository
        else {path: _state(Path(path)) for path in local}
    )
    versions |= {address: Storage().digest(address) for address in remote}
    texts = {
        stage: json.dumps({path: versions[path] for path in sorted(paths)}) if paths else ""
        for stage, paths in params.sources.items()
    }
    return {
        "sources": len(sources),
        **dict.fromkeys(FINGERPRINT.parameter_outputs, ""),
        **texts,
        MLFLOW_PAGE: page,
    }


def _state(path: Path) -> str:
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder, but the parameters name it")
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    states = [
        (str(file.relative_to(path)), file.stat().st_size, file.stat().st_mtime_ns)
        for file in files
    ]
    return sha256(repr(states).encode()).hexdigest()
