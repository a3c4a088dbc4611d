"""How record works."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from components.cluster.push.spec import RecordParams


def run(
    params: RecordParams,
    *,
    repository: str,
    revision: str,
    dvc_lock: Path,
    user_files: Path | None = None,
    **artifacts: Path,
) -> dict[str, float]:
    """Commit ``artifacts`` to DVC in a clone of ``repository``, and push them to its remote.

    Writes ``params.yaml``, ``dvc.yaml`` and ``dvc.lock`` as they are after it, and ``lock.patch``, which
    ``git apply`` takes in a checkout of ``revision``; 'dvc pull' then brings the artifacts, and 'dvc repro' runs
    nothing.

    Args:
        user_files: the user's files that ``fetch`` brought.

    Raises:
        ValueError: git or DVC failed; repeats what it said.
    """
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        _call(Path(folder), "git", "clone", "--quiet", "--no-checkout", repository, "clone")
        _call(clone, "git", "checkout", "--quiet", "--detach", revision)
        (clone / "params.yaml").write_text(yaml.safe_dump(params.values, sort_keys=False))
        _call(clone, sys.executable, "-m", "pipelines", "render")
        if user_files is not None:
            shutil.copytree(user_files, clone, dirs_exist_ok=True, ignore=shutil.ignore_patterns("manifest.json"))
        for name, path in artifacts.items():
            shutil.copytree(path, clone / "artifacts" / name)
        _call(clone, sys.executable, "-m", "dvc", "commit", "--force", "dvc.yaml")
        _call(clone, sys.executable, "-m", "dvc", "push", "dvc.yaml")
        files = ("params.yaml", "dvc.yaml", "dvc.lock")
        for name in files:
            shutil.copy(clone / name, dvc_lock / name)
        _call(clone, "git", "add", "--force", "--intent-to-add", *files)
        (dvc_lock / "lock.patch").write_text(_call(clone, "git", "diff", "--", *files))
    return {"artifacts": len(artifacts)}


def _call(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"record: {' '.join(command)!r} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
