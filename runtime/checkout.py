"""The git checkout of a project: commands with a login, last commits, its folder, and its MLflow
store."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.parse import unquote

from bifocal.progress import log_line

CONFIG = Path(__file__).with_name("login.config")
SQLITE = "sqlite:///"
HOOK_VARIABLES = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_WORK_TREE")
"""Variables that git sets for its hooks: they name the files of the hook's repository."""


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
    except (FileNotFoundError, PermissionError) as error:
        raise ValueError(_not_started(command[0], error)) from error
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


def _not_started(program: str, error: OSError) -> str:
    return (
        f"{program} is not installed: install it, or add its folder to PATH"
        if isinstance(error, FileNotFoundError)
        else f"{program} cannot be run ({error.strerror}): correct its permissions, or PATH"
    )


def ask_git(*arguments: str, folder: Path | None = None) -> str:
    """Return git's answer about the checkout around ``folder``; "" without an answer, and a warning
    if git refuses a checkout, or cannot be run."""
    answer, problem = git_answer(*arguments, folder=folder)
    if "safe.directory" in problem or "cannot be run" in problem:
        _warn(problem)
    return answer


@cache  # once in a process
def _warn(problem: str) -> None:
    log_line(f"warning: {problem}")


def git_answer(*arguments: str, folder: Path | None = None) -> tuple[str, str]:
    """Return git's answer about the checkout around ``folder``, and why there is none."""
    environment = {key: value for key, value in os.environ.items() if key not in HOOK_VARIABLES}
    try:
        process = subprocess.run(
            ["git", *arguments],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except (FileNotFoundError, PermissionError) as error:
        return "", _not_started("git", error)
    if process.returncode == 0:
        return process.stdout.strip(), ""
    # Of another owner's checkout, git's own lines name the cure: safe.directory.
    return "", " ".join(process.stderr.split()) or f"git {arguments[0]} failed"


def tracking_uri() -> str:
    """Address of the MLflow server or database: ``MLFLOW_TRACKING_URI``, or else ``mlflow.db`` of
    the project."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}mlflow.db"
    path = uri.removeprefix(SQLITE)
    if path.startswith(("/", ":", "file:", "databricks")) or (path == uri and ":" in uri):
        return uri
    # Relative to the project: other commands, and 'dvc exp run --temp', have other folders.
    folder = project_folder()
    name = str(folder)
    if "?" in name or unquote(name) != name:  # SQLAlchemy decodes %20
        raise ValueError(
            f"{folder} has a '?' or a code such as %20, which an address of SQLite cannot have: "
            "rename the folder, or set MLFLOW_TRACKING_URI"
        )
    return f"{uri.removesuffix(path)}{folder / path}"


def project_store() -> str:
    """Address of the project's own database."""
    return f"{SQLITE}{project_folder() / 'mlflow.db'}"


def project_folder() -> Path:
    """Folder of DVC or of ``params.yaml`` around the working directory, else the top level of the
    git checkout, else the working directory; ``DVC_ROOT`` for copies that DVC deletes."""
    if "DVC_ROOT" in os.environ:
        return Path(os.environ["DVC_ROOT"]).resolve()
    return _top_level(Path.cwd())


@cache  # each request to MLflow asks for it
def _top_level(folder: Path) -> Path:
    for mark in (".dvc", "params.yaml"):
        for parent in (folder, *folder.parents):
            if (parent / mark).exists():
                return parent.resolve()
    return Path(ask_git("rev-parse", "--show-toplevel", folder=folder) or folder).resolve()
