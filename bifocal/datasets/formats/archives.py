"""Unpack zip files, and tar shards as WebDataset has them; nothing is written outside the
folder."""

import errno
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

import pyarrow.parquet as pq

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.formats.caption_table import SPLIT_NAMES, CaptionTable, recognize
from bifocal.datasets.formats.folder import NOT_UTF8, is_utf8
from bifocal.datasets.formats.table_files import embedded_images
from bifocal.progress import printable

MAX_MEMBER = 512 * 2**20
"""Bytes of one unpacked file."""
HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
MAX_RATIO = 200
"""Unpacked bytes per packed byte of a whole archive; photographs hardly shrink."""
NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
"""Errors of a file system on the name of one file, such as the name of a folder beside it."""
MAX_MEMBERS, MAX_LEVELS, MAX_NAME, MAX_HEADER = 1_000_000, 32, 255, 2**20
"""Files of an archive; folders of a file; bytes of the name of a file or folder; bytes of a header
of a tar."""
BLOCK = 4096
"""Bytes that a file takes on the disk at least."""
STARTS = {
    b"\x89PNG": ".png", b"GIF8": ".gif", b"BM": ".bmp", b"RIFF": ".webp", b"II*\0": ".tif", b"MM\0*": ".tif",
}  # fmt: skip
"""Ends of the names of embedded images by their first bytes; others are called JPEG."""
SLACK = 64 * 2**20
"""Unpacked bytes that are always allowed; above them, MAX_RATIO is the limit."""


class Member(NamedTuple):
    """A file of an archive; ``reason`` says why it is not unpacked, and is None for a regular
    file."""

    name: str
    size: int
    reason: str | None


class UnusableArchiveError(ValueError):
    """An archive cannot be unpacked."""


def unpack(archive: Path, folder: Path) -> list[RejectedEntry]:
    """Write the regular files of an archive to ``folder``; return the skipped members with
    reasons."""
    allowed = MAX_RATIO * archive.stat().st_size + SLACK
    rejected: list[RejectedEntry] = []
    written = members = 0
    seen, created = set[str](), set[int]()
    try:
        for member, content in _members(archive):
            reason, place = (
                member.reason or _unsafe(member, seen),
                printable(f"{archive.name}: {member.name}"),
            )
            members, written = members + 1, written + max(member.size, BLOCK)
            if written > allowed or members > MAX_MEMBERS:
                raise UnusableArchiveError(
                    f"{archive} unpacks to more than {allowed / 2**20:,.0f} MiB, {MAX_RATIO} "
                    f"times its own size, or to more than {MAX_MEMBERS:,} files: this is not "
                    "an archive of photographs"
                )
            if reason is not None:
                rejected.append(RejectedEntry("image", place, reason))
                continue
            seen.add(member.name)
            target = folder / member.name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.exists() and target.stat().st_ino in created:
                    raise OSError(errno.EEXIST, "a file whose name differs in case is there")
                file = target.open("wb")
                created.add(target.stat().st_ino)
            except OSError as error:
                if error.errno not in NAMES:
                    raise
                rejected.append(
                    RejectedEntry("image", place, f"cannot be written: {error.strerror}")
                )
                continue
            with content, file:
                shutil.copyfileobj(_Limited(content, member), file)
    except UnusableArchiveError:
        raise
    except Exception as error:  # the readers raise others than their own on damaged headers
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # of the disk, not of the archive
        reason = str(error) or type(error).__name__
        raise UnusableArchiveError(
            f"{archive} is damaged or not an archive: {reason}; pack it again"
        ) from error
    return rejected


def unpack_embedded(
    root: Path, table: CaptionTable, target: Path, inside: str
) -> list[RejectedEntry]:
    """Write the images of a Parquet table below ``target``, and name them in its rows; return the
    rows without one.

    Files have the numbers of their rows, in the folder ``inside``. The name of a file of the
    Hugging Face hub begins with a split.
    """
    rejected, kept = list[RejectedEntry](), list[tuple[str, dict[str, Any]]]()
    split = SPLIT_NAMES.get(PurePosixPath(table.name).name.partition("-")[0].lower())
    own = {} if split is None or recognize(table.columns, "split") else {"split": split}
    table.columns += own
    rows = iter(table.rows)
    with pq.ParquetFile(root / table.name) as file:
        column = str(embedded_images(file.schema_arrow))
        for batch in file.iter_batches(batch_size=64, columns=[f"{column}.bytes"]):
            for value in batch.column(0).to_pylist():
                content, (place, row) = (value or {}).get("bytes") or b"", next(rows)
                if not 0 < len(content) <= MAX_MEMBER:
                    reason = f"an image of {len(content):,} bytes, expected 1 to {MAX_MEMBER:,}"
                    rejected.append(RejectedEntry("image", place, reason))
                    continue
                ends = (end for start, end in STARTS.items() if content.startswith(start))
                name = f"{inside}{len(kept) + len(rejected):08}{next(ends, '.jpg')}"
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(content)
                kept.append((place, {**row, column: name, **own}))
    table.rows[:] = kept
    return rejected


def remove_all_but(folder: Path, kept: Sequence[str | None]) -> None:
    """Delete the files of an unpacked archive, such as tables and texts, except the images
    ``kept``."""
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
                    name = info.filename
                    with suppress(UnicodeError):  # macOS sets no flag of UTF-8
                        name = name.encode("cp437").decode()
                    member = Member(name, info.file_size, "a link" if link else reason)
                    yield member, BytesIO() if member.reason else packed.open(info)
    else:
        with closing(tarfile.open(archive, tarinfo=_Header)) as tar:
            for entry in tar:
                if not entry.isdir():
                    content = tar.extractfile(entry) if entry.isreg() else None
                    reason = None if content else "no regular file, such as a link or a device"
                    yield Member(entry.name, entry.size, reason), content or BytesIO()
            _check_end(tar)


class _Header(tarfile.TarInfo):
    """A header of a tar; a long name or values in a further header are read at once, so its size is
    limited."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.size > MAX_HEADER and self.type in HEADERS:
            raise tarfile.ReadError(f"a header of {self.size} bytes, at most {MAX_HEADER} are read")
        return super()._proc_member(tar)  # type: ignore[misc]


def _check_end(tar: tarfile.TarFile) -> None:
    """Raise ``tarfile.ReadError`` if an archive lacks the zero block of its end: a part of it may
    be missing."""
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
    if not is_utf8(member.name):
        return NOT_UTF8
    if len(path.parts) > MAX_LEVELS or max(len(part.encode()) for part in path.parts) > MAX_NAME:
        return f"in more than {MAX_LEVELS - 1} folders, or a name of more than {MAX_NAME} bytes"
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
            raise zipfile.BadZipFile(
                f"{self.member.name} has more bytes than the {self.member.size} that it states"
            )
        return data
