"""Last commits that changed paths of a repository."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from runtime.git.commands import call


def last_commits(repository: str, revision: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the last commit up to ``revision`` that changed each path or its DVC files, else ``revision`` itself."""
    paths = sorted(paths)
    if not paths:
        return {}
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        # Commits and folders only: the files may be large.
        call("git", "clone", "--quiet", "--no-checkout", "--filter=blob:none", "--", repository, str(clone))
        head = _resolve(clone, revision, repository)
        log = ("git", "-C", str(clone), "--literal-pathspecs", "log", "--max-count=1", "--format=%H", head, "--")
        return {path: call(*log, *_tracking_files(path)).strip() or head for path in paths}


def _tracking_files(path: str) -> list[str]:
    """Return ``path`` with the files that describe it: its own .dvc file, or the .dvc file of a folder around it."""
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
