"""Copies of a stage's checkpoints on S3, from which it resumes on another machine."""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any
from uuid import uuid4

from bifocal.durable import change, json_digest, link, write_json
from bifocal.onnx.files import read_json
from bifocal.progress import log_line
from runtime import artifacts
from runtime.s3.storage import Storage
from runtime.s3.uri import StorageError, check_relative

FOLDER = "BIFOCAL_CHECKPOINTS"
MINUTES = "BIFOCAL_CHECKPOINT_MINUTES"
DEFAULT_MINUTES = "5"
INDEX = "index.json"
STAGING = ".upload-"
Version = tuple[int, int]
"""Inode and time of a file. Checkpoints are replaced, never changed, so both together name one
version."""


@dataclass
class RemoteCheckpoints:
    """Copies of one stage's checkpoints below ``uri``, every ``seconds``; a hook of
    ``bifocal.training.checkpoints``. The index is uploaded last, from hard links while training
    goes on; each process has its own file names, so a lost pod and its successor do not mix.
    """

    uri: str
    folders: Mapping[str, Path]
    seconds: float
    _storage: Storage = field(default_factory=Storage, init=False)
    _executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1), init=False)
    _pending: Future[None] | None = field(default=None, init=False)
    _remote: dict[str, tuple[Version, str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._process, self._count = uuid4().hex[:12], 0
        self._next = time.monotonic() + self.seconds
        self._is_behind = False

    def restore(self) -> None:
        """Download the last copy, if there is one and no local folder has files."""
        if self._files() or not self._storage.exists(f"{self.uri}/{INDEX}"):
            return
        with TemporaryDirectory() as temporary:
            self._storage.download(f"{self.uri}/{INDEX}", Path(temporary) / INDEX)
            files: dict[str, str] = read_json(Path(temporary) / INDEX)
        complete: dict[Path, Path] = {}
        for name, remote in files.items():
            output, _, path = check_relative(name, self.uri).partition("/")
            folder = self.folders[output]
            # A killed restore must not leave a part of the files: all folders are renamed when they
            # are complete.
            complete[folder] = folder.with_name(f"{folder.name}{STAGING}")
            self._storage.download(f"{self.uri}/{remote}", complete[folder] / path)
        with change(next(iter(self.folders.values())).parents[1]) as changed:
            for folder, partial in complete.items():
                changed.rename(partial, folder)
        log_line(f"restored {len(files)} files of checkpoints from {self.uri}")

    def __call__(self, *, is_last: bool) -> None:
        """Start an upload if ``seconds`` have passed and none is running; before the end, wait for
        it."""
        self._is_behind = True
        is_running = self._pending is not None and not self._pending.done()
        if is_last:
            self._upload_now()
        elif time.monotonic() >= self._next and not is_running:
            self._start()

    def close(self, *, failed: bool) -> None:
        """Wait for the running upload; after a failure, upload the last checkpoints too."""
        if failed and self._is_behind:
            self._upload_now()
        self._executor.shutdown()

    def delete(self) -> None:
        """Delete all copies below ``uri``."""
        self._storage.delete(self.uri)

    def _upload_now(self) -> None:
        if self._pending is not None:
            self._pending.result()
        self._start()
        if self._pending is not None:
            self._pending.result()

    def _start(self) -> None:
        self._next, self._is_behind = time.monotonic() + self.seconds, False
        folder = next(iter(self.folders.values()))
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(mkdtemp(prefix=STAGING, dir=folder))
        snapshot: dict[str, tuple[Version, str]] = {}
        for name, path in self._files():
            stat = path.stat()
            version = stat.st_ino, stat.st_mtime_ns
            sent = self._remote.get(name)
            if sent is not None and sent[0] == version:
                snapshot[name] = sent
                continue
            self._count += 1
            snapshot[name] = version, f"{self._process}/{self._count}"
            link(path, staging / "files" / str(self._count))
        self._pending = self._executor.submit(self._upload, staging, snapshot)

    def _files(self) -> list[tuple[str, Path]]:
        """All complete files with their names, which begin with the name of the folder."""
        return [
            (f"{name}/{path.relative_to(folder).as_posix()}", path)
            for name, folder in self.folders.items()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
            and path.suffix != ".new"
            and STAGING not in path.relative_to(folder).as_posix()
        ]

    def _upload(self, staging: Path, snapshot: Mapping[str, tuple[Version, str]]) -> None:
        """Upload the files, then the index, then delete the unused files of the index before; log a
        failure."""
        index = {name: remote for name, (_, remote) in snapshot.items()}
        try:
            if (staging / "files").is_dir():
                self._storage.upload(staging / "files", f"{self.uri}/{self._process}")
            (staging / "index").mkdir()
            write_json(staging / "index" / INDEX, index)
            self._storage.upload(staging / "index", self.uri)
            unused = {remote for _, remote in self._remote.values()} - set(index.values())
            self._remote = dict(snapshot)
            for remote in unused:
                self._storage.delete(f"{self.uri}/{remote}")
        except StorageError as error:
            # An outage of S3 must not end a training of days: the next checkpoint is another
            # attempt.
            log_line(f"warning: the checkpoints were not copied to {self.uri}: {error}")
            self._is_behind = True
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def remote_checkpoints(
    fingerprint: Mapping[str, Any], partials: Mapping[str, Path]
) -> Iterator[None]:
    """Restore and copy the checkpoints of a stage with ``BIFOCAL_CHECKPOINTS``, every
    ``BIFOCAL_CHECKPOINT_MINUTES`` and after SIGTERM or an error. On Kubeflow, the last copy needs a
    TrainJob: a step dies a second after SIGTERM, because KFP's launcher (pipelines
    ``backend/src/v2/component/launcher_v2.go:707``) does not handle it.
    """
    store = _store(
        fingerprint, {name: partial / artifacts.CHECKPOINTS for name, partial in partials.items()}
    )
    if store is None or not partials:  # a step without outputs trains nothing
        yield
        return
    from bifocal.training.checkpoints import (
        checkpoint_hook,
    )  # torch, which the compiler of a graph does not need

    store.restore()
    failed = True
    try:
        with checkpoint_hook(store):
            yield
        failed = False
    finally:
        store.close(failed=failed)


def delete_checkpoints(inputs: Iterable[Path]) -> None:
    """Delete the checkpoints behind complete artifacts; only a later stage does so, because
    Kubeflow uploads an artifact after its stage ends.
    """
    for path in inputs:
        store = _store(artifacts.fingerprint_of(artifacts.read_manifest(path)), {})
        try:
            if store is not None:
                store.delete()
        except StorageError as error:
            log_line(f"warning: old checkpoints remain: {error}")


def _store(fingerprint: Mapping[str, Any], folders: Mapping[str, Path]) -> RemoteCheckpoints | None:
    root = os.environ.get(FOLDER)
    if not root:
        return None
    text = os.environ.get(MINUTES, DEFAULT_MINUTES)
    try:
        seconds = 60 * float(text)
    except ValueError as error:
        raise ValueError(
            f"{MINUTES} is {text!r}: expected minutes, such as {DEFAULT_MINUTES}"
        ) from error
    return RemoteCheckpoints(
        f"{root.rstrip('/')}/{json_digest(fingerprint)[:32]}", folders, seconds
    )
