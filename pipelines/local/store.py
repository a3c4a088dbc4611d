"""Object store of local runs: a folder that holds files by their key, as MinIO does on a cluster."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

BUCKET = "minio://mlpipeline"
"""Bucket of Kubeflow's default pipeline root (kubeflow/pipelines 2.17, backend/src/v2/config/env.go:38)."""


@dataclass(frozen=True)
class ObjectStore:
    """Folder with one file per object: hard links where the file system has them, so no data is copied."""

    folder: Path

    def path(self, uri: str) -> Path:
        return self.folder / uri.removeprefix(f"{BUCKET}/")

    def upload(self, source: Path, uri: str) -> None:
        """Store the file ``source``, or the files of a folder, at ``uri``."""
        for file in _files(source):
            _link(file, self.path(uri) / file.relative_to(source))

    def download(self, uri: str, target: Path) -> None:
        """Put the objects at ``uri`` to ``target``; write nothing if there are none, as Kubeflow's DownloadBlob."""
        with suppress(FileNotFoundError):
            for file in _files(self.path(uri)):
                _link(file, target / file.relative_to(self.path(uri)))


def _files(source: Path) -> list[Path]:
    if source.is_dir():
        return sorted(path for path in source.rglob("*") if path.is_file())
    if not source.exists():
        raise FileNotFoundError(source)
    return [source]


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)
    with suppress(PermissionError):  # the file belongs to the user of the pod
        target.chmod(0o444)
