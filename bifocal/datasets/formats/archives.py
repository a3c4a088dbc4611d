"""Unpack zip files, and tar shards as WebDataset has them; nothing is written outside the folder."""

import errno
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from io import BytesIO
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from bifocal.datasets.base import RejectedEntry

MAX_MEMBER = 512 * 2**20
"""Bytes of one unpacked file."""
MAX_RATIO = 200
"""Unpacked bytes per packed byte of a whole archive; photographs hardly shrink."""
DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, NotImplementedError)
SLACK = 64 * 2**20
"""Unpacked bytes that are always allowed; above them, MAX_RATIO is the limit."""


class Member(NamedTuple):
    """A file of an archive; ``reason`` says why it is not unpacked, and is None for a regular file."""

    name: str
    size: int
    reason: str | None


def unpack(archive: Path, folder: Path) -> list[RejectedEntry]:
    """Write the regular files of an archive to ``folder``; return the skipped members with reasons."""
    allowed = MAX_RATIO * archive.stat().st_size + SLACK
    rejected: list[RejectedEntry] = []
    written = 0
    seen: set[str] = set()
    try:
        for member, content in _members(archive):
            reason = member.reason or _unsafe(member, seen)
            if reason is not None:
                rejected.append(RejectedEntry("image", f"{archive.name}: {member.name}", reason))
                continue
            written += member.size
            if written > allowed:
                raise ValueError(
                    f"{archive} unpacks to more than {allowed / 2**20:,.0f} MiB, {MAX_RATIO} times its own size: this "
                    "is not an archive of photographs"
                )
            seen.add(member.name)
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(_Limited(content, member), file)
    except (*DAMAGES, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # of the disk, not of the archive
            raise
        raise ValueError(f"{archive} is damaged or not an archive: {error}; pack it again") from error
    return rejected


def remove_all_but(folder: Path, kept: Sequence[str | None]) -> None:
    """Delete the files of an unpacked archive, such as tables and texts, except the images ``kept``."""
    wanted = {str(folder / path) for path in kept if path}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                shutil.rmtree(path)
        elif str(path) not in wanted:
            path.unlink()


def _members(archive: Path) -> Iterator[tuple[Member, IO[bytes]]]:
    if archive.suffix.lower() == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    reason = "encrypted" if info.flag_bits & 1 else None
                    link = (info.external_attr >> 16) & 0o170000 == 0o120000
                    member = Member(info.filename, info.file_size, "a link" if link else reason)
                    yield member, BytesIO() if member.reason else packed.open(info)
    else:
        with closing(tarfile.open(archive)) as tar:
            for entry in tar:
                if not entry.isdir():
                    content = tar.extractfile(entry) if entry.isreg() else None
                    reason = None if content else "no regular file, such as a link or a device"
                    yield Member(entry.name, entry.size, reason), content or BytesIO()
            _check_end(tar)


def _check_end(tar: tarfile.TarFile) -> None:
    """Raise ``tarfile.ReadError`` if an archive lacks the zero block of its end: a part of it may be missing."""
    stream = cast("IO[bytes]", tar.fileobj)
    stream.seek(tar.offset)
    if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it lacks the zero block of its end, so a part may be missing")


def _unsafe(member: Member, seen: set[str]) -> str | None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    if not path.parts:
        return "no name"
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        return "a path outside the archive"
    if "\\" in member.name or "\0" in member.name:
        return "a name with a backslash or a zero byte"
    if member.name in seen:
        return "a name that occurs twice; the first file is kept"
    if member.size > MAX_MEMBER:
        return f"{member.size / 2**20:,.0f} MiB, more than {MAX_MEMBER // 2**20} MiB"
    return None


class _Limited:
    """A stream of a member that fails when it has more bytes than its archive states."""

    def __init__(self, content: IO[bytes], member: Member) -> None:
        self.content, self.member, self.left = content, member, member.size

    def read(self, size: int = -1) -> bytes:
        data = self.content.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise zipfile.BadZipFile(f"{self.member.name} has more bytes than the {self.member.size} that it states")
        return data
