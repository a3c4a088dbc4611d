"""The git checkout of a project: commands with a login, last commits, its folder, and its MLflow
store."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

CONFIG = Path(__file__).with_name("login.config")


def git_environment() -> dict[str, str]:
    """Return the environment for git and DVC: no prompts, and the login of ``BIFOCAL_GIT_PASSWORD``
    in a file of git's configuration, because DVC's dulwich ignores ``GIT_CONFIG_COUNT``.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    if environment.get("BIFOCAL_GIT_PASSWORD"):
        environment["GIT_CONFIG_GLOBAL"] = str(CONFIG)
        environment["BIFOCAL_GIT_USERNAME"] = environment.get("BIFOCAL_GIT_USERNAME") or "git"
    return environment


def call(
    *command: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Return a command's output, or raise ``ValueError``; the process environment overrides
    ``environment``."""
    variables = {**(environment or {}), **git_environment()}
    try:
        process = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ValueError(
            f"{command[0]} is not installed: install it, or add its folder to PATH"
        ) from error
    if process.returncode:
        raise ValueError(
            f"{' '.join(command)!r} failed: {(process.stderr or process.stdout).strip()}"
        )
    return process.stdout


def last_commits(repository: str, revision: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the last commit up to ``revision`` that changed each path or its DVC files, else
    ``revision`` itself."""
    paths = sorted(paths)
    if not paths:
        return {}
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        # Commits and folders only: the files may be large.
        call(
            "git",
            "clone",
            "--quiet",
            "--no-checkout",
            "--filter=blob:none",
            "--",
            repository,
            str(clone),
        )
        head = _resolve(clone, revision, repository)
        log = (
            "git",
            "-C",
            str(clone),
            "--literal-pathspecs",
            "log",
            "--max-count=1",
            "--format=%H",
            head,
            "--",
        )
        return {path: call(*log, *_tracking_files(path)).strip() or head for path in paths}


def _tracking_files(path: str) -> list[str]:
    """Return ``path`` with the files that describe it: its own .dvc file, or the .dvc file of a
    folder around it."""
    folders = [PurePosixPath(path), *PurePosixPath(path).parents][:-1]
    # An older .dvc/config may name a remote that is gone.
    return [path, *(f"{folder}.dvc" for folder in folders), ".dvc/config"]


def _resolve(clone: Path, revision: str, repository: str) -> str:
    verify = ("git", "-C", str(clone), "rev-parse", "--verify", "--quiet", "--end-of-options")
    for name in (f"origin/{revision}", revision):
        try:
            return call(*verify, f"{name}^{{commit}}").strip()
        except ValueError:
            continue
    raise ValueError(f"{repository} has no commit or branch {revision!r}: is it pushed?")


def ask_git(*arguments: str, folder: Path | None = None) -> str:
    """Return git's answer about the checkout around ``folder``; "" outside a checkout or without
    git."""
    try:
        process = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""


def tracking_uri() -> str:
    """Address of the MLflow server or database: ``MLFLOW_TRACKING_URI``, or else ``mlflow.db`` of
    the project."""
    return os.environ.get("MLFLOW_TRACKING_URI") or project_store()


def project_store() -> str:
    """Address of the project's own database."""
    return f"sqlite:///{project_folder() / 'mlflow.db'}"


def project_folder() -> Path:
    """Top level of the git checkout, else the working directory; ``DVC_ROOT`` for copies that DVC
    deletes."""
    if "DVC_ROOT" in os.environ:
        return Path(os.environ["DVC_ROOT"]).resolve()
    return _top_level(Path.cwd())


@cache  # each request to MLflow asks for it
def _top_level(folder: Path) -> Path:
    return Path(ask_git("rev-parse", "--show-toplevel", folder=folder) or folder).resolve()
