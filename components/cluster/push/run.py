"""Step push: run."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from components.cluster.push.spec import PushParams
from runtime.artifacts import MANIFEST
from runtime.kfp_executor import USER_FILES

DVC_FILES = ("params.yaml", "dvc.yaml", "dvc.lock")


def run(
    params: PushParams,
    *,
    repository: str,
    revision: str,
    dvc_lock: Path,
    **artifacts: Path,
) -> dict[str, float]:
    """Commit ``artifacts`` to DVC in a clone of ``repository`` and push them to its remote.

    Writes ``params.yaml``, ``dvc.yaml`` and ``dvc.lock`` of the run, and ``lock.patch``. After ``git apply lock.patch``
    in a checkout of ``revision``, 'dvc pull' downloads the artifacts and 'dvc repro' runs no stage.

    Args:
        artifacts: outputs of the stages, and as ``user_files_<stage>`` what the step ``fetch`` wrote.

    Raises:
        ValueError: git or DVC failed; the message has its error.
    """
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        _call(Path(folder), "git", "clone", "--quiet", "--no-checkout", repository, "clone")
        _call(clone, "git", "checkout", "--quiet", "--detach", revision)
        (clone / "params.yaml").write_text(yaml.safe_dump(params.values, sort_keys=False))
        _call(clone, sys.executable, "-m", "pipelines", "render", "--dvc-only")
        for name, path in artifacts.items():
            if name.startswith(USER_FILES):
                shutil.copytree(path, clone, dirs_exist_ok=True)
                (clone / MANIFEST).unlink()
            else:
                shutil.copytree(path, clone / "artifacts" / name)
        _call(clone, sys.executable, "-m", "dvc", "commit", "--force", "dvc.yaml")
        _call(clone, sys.executable, "-m", "dvc", "push", "dvc.yaml")
        for name in DVC_FILES:
            shutil.copy(clone / name, dvc_lock / name)
        _call(clone, "git", "add", "--force", "--intent-to-add", *DVC_FILES)
        (dvc_lock / "lock.patch").write_text(_call(clone, "git", "diff", "--", *DVC_FILES))
    return {"artifacts": len(artifacts)}


def _call(folder: Path, *command: str) -> str:
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        raise ValueError(f"push: {' '.join(command)!r} failed: {(process.stderr or process.stdout).strip()}")
    return process.stdout
