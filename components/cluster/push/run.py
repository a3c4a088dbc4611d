"""Step push: run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from components.cluster.push.spec import PushParams
from runtime.artifacts import MANIFEST
from runtime.git import git_environment
from runtime.kubeflow.executor import USER_FILES

DVC_FILES = ("params.yaml", "dvc.yaml", "dvc.lock")
EXTRA_FILES = ("artifacts/.gitignore", "artifacts/registration/registration.json")
BRANCHES = "runs"
PACKAGES_FILE = "packages.json"
AUTHOR = {f"GIT_{role}_NAME": "Bifocal" for role in ("AUTHOR", "COMMITTER")} | {
    f"GIT_{role}_EMAIL": "bifocal@localhost" for role in ("AUTHOR", "COMMITTER")
}
"""Author of the commit, unless the environment names another."""


def run(
    params: PushParams,
    *,
    repository: str,
    revision: str,
    dvc_lock: Path,
    **artifacts: Path,
) -> dict[str, float]:
    """Push ``artifacts`` to the DVC remote of ``repository``, and a branch that names them to ``repository`` itself.

    The branch ``runs/<id of the pipeline run>`` is one commit on top of ``revision``, with ``params.yaml``,
    ``dvc.yaml``, ``dvc.lock`` and the registration. In a checkout of it, 'dvc pull' downloads the artifacts and
    'dvc repro' runs no stage; without it, 'dvc gc --cloud' would delete them. The output has the same files, and the
    change as ``lock.patch``.

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
        _call(clone, sys.executable, "-m", "pipelines", "packages", f"artifacts/{PACKAGES_FILE}")
        _call(clone, sys.executable, "-m", "dvc", "commit", "--force", "dvc.yaml")
        _call(clone, sys.executable, "-m", "dvc", "push", "dvc.yaml")
        for name in DVC_FILES:
            shutil.copy(clone / name, dvc_lock / name)
        _call(clone, "git", "add", "--force", "--intent-to-add", *DVC_FILES)
        (dvc_lock / "lock.patch").write_text(_call(clone, "git", "diff", "--", *DVC_FILES))
        _push_branch(clone, revision)
    return {"artifacts": len(artifacts)}


def _push_branch(clone: Path, revision: str) -> None:
    """Commit the DVC files and push them; a retry of the step replaces the branch of its first attempt."""
    # Outside of a pipeline run, equal results have one branch.
    content = "".join((clone / name).read_text() for name in DVC_FILES)
    name = os.environ.get("KFP_RUN_ID") or sha256(content.encode()).hexdigest()[:16]
    branch = f"{BRANCHES}/{name}"
    files = [*DVC_FILES, *(path for path in EXTRA_FILES if (clone / path).is_file())]
    _call(clone, "git", "add", "--force", *files)
    message = f"Add the outputs of the pipeline run {name}\n\nThe code and the user files are those of {revision}."
    _call(clone, "git", "commit", "--quiet", "--no-verify", "--message", message, environment=AUTHOR)
    try:
        _call(clone, "git", "push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{branch}")
    except ValueError as error:
        raise ValueError(
            f"{error}; the outputs are in the DVC remote, but no branch names them: allow the credentials of this step "
            f"to push branches {BRANCHES}/*, or apply lock.patch of its output"
        ) from error


def _call(folder: Path, *command: str, environment: Mapping[str, str] | None = None) -> str:
    process = subprocess.run(
        command,
        cwd=folder,
        env={**(environment or {}), **git_environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise ValueError(f"push: {' '.join(command)!r} failed: {(process.stderr or process.stdout).strip()}")
    return process.stdout
