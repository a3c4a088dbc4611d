"""Step fetch: run."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.artifacts import hash_files
from runtime.checkout import git_environment

if TYPE_CHECKING:
    from components.cluster.steps import FetchParams


def run(
    params: "FetchParams", *, repository: str, versions: str, user_files: Path
) -> dict[str, float]:
    """Copy each path to ``user_files``; ``versions`` is JSON of the step ``fingerprint``: the
    commit of each path."""
    commits = json.loads(versions)
    for path in params.paths:
        revision = commits[path]
        target = user_files / path
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "dvc",
            "get",
            "--rev",
            revision,
            "--out",
            str(target),
            repository,
            path,
        ]
        process = subprocess.run(
            command, env=git_environment(), capture_output=True, text=True, check=False
        )
        if process.returncode:
            # DVC prints hints about its support besides the error.
            errors = [line for line in process.stderr.splitlines() if line.startswith("ERROR: ")]
            reason = errors[-1].removeprefix("ERROR: ") if errors else process.stderr.strip()
            raise ValueError(
                f"fetch: dvc cannot get {path} at {revision} of {repository}: {reason}; "
                "is it tracked there ('dvc add' or 'git add'), committed and pushed?"
            )
    return {"files": len(hash_files(user_files))}
