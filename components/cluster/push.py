"""Step push: run."""

import os
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from components.cluster.steps import PushParams
from runtime.artifacts import MANIFEST
from runtime.checkout import call
from runtime.kubeflow.executor import USER_FILES
from runtime.parameters import dump_yaml

DVC_FILES = ("params.yaml", "dvc.yaml", "dvc.lock")
EXTRA_FILES = ("artifacts/.gitignore", "artifacts/registration/registration.json")
BRANCHES = "runs"
PACKAGES_FILE = "packages.json"
AUTHOR = {f"GIT_{role}_NAME": "Bifocal" for role in ("AUTHOR", "COMMITTER")} | {
    f"GIT_{role}_EMAIL": "bifocal@localhost" for role in ("AUTHOR", "COMMITTER")
}
"""Author of the commit, unless the environment names another."""


def run(
    params: PushParams, *, repository: str, revision: str, dvc_lock: Path, **artifacts: Path
) -> dict[str, float]:
    """Push ``artifacts`` to the DVC remote, and a branch that names them to ``repository``.

    The branch ``runs/<id of the pipeline run>`` is one commit on top of ``revision``: 'dvc pull'
    downloads the artifacts, and 'dvc gc --cloud' keeps them. The output has the same files, and the
    change as ``lock.patch``.
    """
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        call("git", "clone", "--quiet", "--no-checkout", repository, str(clone))
        call("git", "checkout", "--quiet", "--detach", revision, folder=clone)
        (clone / "params.yaml").write_text(dump_yaml(params.values))
        call(sys.executable, "-m", "pipelines", "render", "--dvc-only", folder=clone)
        for name, path in artifacts.items():
            if name.startswith(USER_FILES):
                shutil.copytree(path, clone, dirs_exist_ok=True)
                (clone / MANIFEST).unlink()
            else:
                shutil.copytree(path, clone / "artifacts" / name)
        call(
            sys.executable,
            "-m",
            "pipelines",
            "packages",
            f"artifacts/{PACKAGES_FILE}",
            folder=clone,
        )
        call(sys.executable, "-m", "dvc", "commit", "--force", "dvc.yaml", folder=clone)
        call(sys.executable, "-m", "dvc", "push", "dvc.yaml", folder=clone)
        for name in DVC_FILES:
            shutil.copy(clone / name, dvc_lock / name)
        call("git", "add", "--force", "--intent-to-add", *DVC_FILES, folder=clone)
        (dvc_lock / "lock.patch").write_text(call("git", "diff", "--", *DVC_FILES, folder=clone))
        _push_branch(clone, revision)
    return {"artifacts": len(artifacts)}


def _push_branch(clone: Path, revision: str) -> None:
    """Commit the DVC files and push them; a retry of the step replaces the branch of its first
    attempt."""
    # Outside of a pipeline run, equal results have one branch.
    content = "".join((clone / name).read_text() for name in DVC_FILES)
    name = os.environ.get("KFP_RUN_ID") or sha256(content.encode()).hexdigest()[:16]
    branch = f"{BRANCHES}/{name}"
    files = [*DVC_FILES, *(path for path in EXTRA_FILES if (clone / path).is_file())]
    call("git", "add", "--force", *files, folder=clone)
    message = (
        f"Add the outputs of the pipeline run {name}\n\nThe code and the user files have the "
        f"revision {revision}."
    )
    call(
        "git",
        "commit",
        "--quiet",
        "--no-verify",
        "--message",
        message,
        folder=clone,
        environment=AUTHOR,
    )
    try:
        call(
            "git", "push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{branch}", folder=clone
        )
    except ValueError as error:
        raise ValueError(
            f"{error}; the outputs are in the DVC remote, but no branch names them: allow the "
            f"credentials of this step to push branches {BRANCHES}/*, or apply lock.patch of "
            "its output"
        ) from error
