"""How fetch works."""

import shutil
import subprocess
import sys
from pathlib import Path

from components.cluster.fetch.spec import FetchParams
from runtime.artifacts import hash_files


def run(params: FetchParams, *, repository: str, revision: str, user_files: Path) -> dict[str, float]:
    """Put each of ``paths`` below ``user_files``.

    Args:
        repository: address or folder of a git repository that DVC was set up in.
        revision: a commit, or a branch, which then is read as it stands now.

    Raises:
        ValueError: DVC cannot get one of them; repeats what it said.
    """
    for path in params.paths:
        target = user_files / path
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "dvc", "get", "--rev", revision, "--out", str(target), repository, path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            # Between hints at DVC's own support.
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")] or [done.stderr.strip()]
            raise ValueError(
                f"fetch: dvc cannot get {path} at {revision} of {repository}: {said[-1].removeprefix('ERROR: ')}; "
                "is it tracked there ('dvc add' or 'git add'), committed and pushed?"
            )
    return {"files": len(hash_files(user_files))}
